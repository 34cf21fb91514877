# Sourced by the scripts, from the root of the checkout, and by clients/go/environment, which runs in sh. So no bash
# syntax here.
# shellcheck shell=dash disable=SC2034,SC2154 # variables are set here and read there
unset MAKEFLAGS MFLAGS # set by the calling `make`
target=${CARGO_TARGET_DIR:-target}
user_cache=${XDG_CACHE_HOME:-$HOME/.cache}/redis-lock
tools_cache=${TOOLS_CACHE:-$user_cache/tools}

# shellcheck disable=SC2059 # the variable is only the name of a script
say() { printf "${0##*/}: %s\n" "$@" >&2; }
die() { say "$@"; exit 1; }

# Builds ---------------------------------------------------------------------------------------------------------

# Call this in a subshell before a release build. Panic messages contain the paths of source files; this replaces local
# paths with /crates and /redis-lock, so that the same sources and compiler produce identical bytes in every folder, for
# every user. The caller's RUSTFLAGS come first. Cargo splits RUSTFLAGS at spaces, so a path that contains a space is
# not replaced.
release_flags() {
    local registries=${CARGO_HOME:-$HOME/.cargo}/registry/src crates
    # The name of the crates' folder is unknown until the first download.
    ls -d "$registries"/*/ >/dev/null 2>&1 || cargo fetch --quiet
    for crates in "$registries"/*; do
        case $crates in *" "*) ;; *) RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$crates=/crates" ;; esac
    done
    case $PWD in *" "*) ;; *) RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$PWD=/redis-lock" ;; esac
    export RUSTFLAGS
    # A changed value would rerun build scripts that compile C and rebuild all dependents. Their output contains no
    # timestamps, so it is not needed.
    unset SOURCE_DATE_EPOCH
}

# Sets REDIS_LOCK_MODULE, unless it is set, to the release build of the module.
release_module() {
    local module
    if [ -z "${REDIS_LOCK_MODULE:-}" ]; then
        for module in "$target/release/libredis_lock.so" "$target/release/libredis_lock.dylib"; do
            if [ -f "$module" ]; then REDIS_LOCK_MODULE=$(cd "${module%/*}" && pwd)/${module##*/}; fi
        done
        export REDIS_LOCK_MODULE
    fi
}

# Tools ----------------------------------------------------------------------------------------------------------

# Python packages that contain the programs; requirements.txt has their hashes.
zig_version=0.15.2
cargo_zigbuild_version=0.22.3
zig_root=$tools_cache/zig-$zig_version-$cargo_zigbuild_version
# The oldest Go that the Go client supports (see its go.mod), and the version to install if there is none.
go_oldest=1.24
go_version=1.26.6
go_root=$tools_cache/go-$go_version

# Prints the folder of a Go that is new enough: from PATH, or else the one that setup installed.
go_bin() {
    local go found
    for go in "$(command -v go || true)" "$go_root/go/bin/go"; do
        [ -x "$go" ] || continue
        found=$(GOTOOLCHAIN=local "$go" env GOVERSION | sed 's/^go//')
        if [ "$(printf '%s\n%s\n' "$go_oldest" "$found" | sort -V | head -n 1)" = "$go_oldest" ]; then
            dirname "$go"
            return
        fi
    done
    return 1
}

# Creates `work`, a temporary folder in the cache $1, which is removed when the script exits.
make_work_folder() {
    mkdir -p "$1"
    # Left behind by killed runs.
    find "$1" -maxdepth 1 -name 'work.*' -mtime +0 -exec rm -rf {} +
    work=$(mktemp -d "$1/work.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
}

# A separate apt configuration in `work`: it installs nothing and does not change the system's lists. The system's
# sources, keys and proxies apply unless the settings in the arguments override them.
separate_apt() {
    mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
    : >"$work/apt/status"
    export APT_CONFIG="$work/apt/apt.conf"
    # When run as root, apt would download as a user without write permission here.
    printf '%s;\n' "Dir::State \"$work/apt\"" "Dir::State::status \"$work/apt/status\"" \
        "Dir::Cache \"$work/apt/cache\"" "APT::Sandbox::User \"$(id -un)\"" "$@" >"$APT_CONFIG"
}

# The packages of the module and of its tests: the others would compile libraries that these do not need, or change the
# features of theirs, so that everything is compiled again.
module_packages="--workspace"
for package in cli client client-tests demo floor; do
    module_packages="$module_packages --exclude redis-lock-$package"
done

# Suites of tests ------------------------------------------------------------------------------------------------

# begin_times; timed PART COMMAND …; show_times TITLE: measures each part. The first line of the file is the start time
# (Unix time). Each part appends a line: elapsed, user and system time in seconds. With TIMES=yes the table becomes the
# section TITLE of results/test-times.md.
times=$target/times

begin_times() { mkdir -p "$target" && date +%s >"$times"; }

timed() {
    local TIMEFORMAT="$1 %0R %0U %0S"
    shift
    mkdir -p "$target"
    { time "$@" 2>&3; } 3>&2 2>>"$times"
}

show_times() {
    local table
    table=$(awk -v ends="$(date +%s)" '
        NR == 1 { began = $1; print "| part | seconds | CPU seconds |\n| --- | --: | --: |"; next }
        { cpu = $3 + $4; all += cpu; if ($2 > 0) printf "| %s | %d | %d |\n", $1, $2, cpu }
        END { printf "| **all, several at a time** | %d | %d |\n", ends - began, all }' "$times")
    echo "$table"
    [ "${TIMES:-}" != yes ] || echo "$table" | scripts/result --section test-times "$1"
}

# side_by_side FOLDER SUITE …: runs these functions in parallel, at most AT_MOST (default: all) at a time, because
# suites mostly wait for servers. Prints the output of each suite when it ends. Appends the names of failed suites to
# `failed` and of those that exited with 77 to `skipped`. Each suite gets its own process group, so that Ctrl-C also
# stops its servers.
failed="" skipped="" logs=""
side_by_side() {
    local folder=$1 most=${AT_MOST:-100} suite running="" # words PID:SUITE
    logs=$folder
    shift
    set -m
    trap 'for suite in $running; do kill -INT -- "-${suite%%:*}" 2>/dev/null || true; done; wait; exit 130' INT TERM
    for suite; do
        while [ "$(echo "$running" | wc -w)" -ge "$most" ]; do next_to_end; done
        timed "$suite" "$suite" >"$folder/$suite.log" 2>&1 </dev/null &
        running="$running $!:$suite"
    done
    while [ -n "$running" ]; do next_to_end; done
    set +m
    trap - INT TERM
}

# Repeats the last lines of each suite in `failed`, because the output of other suites may have followed.
show_failures() {
    local suite
    for suite in $failed; do
        printf '\nThe end of %s/%s.log:\n' "$logs" "$suite"
        tail -n 30 "$logs/$suite.log" | cut -c 1-300
    done >&2
}

# Waits until one suite of `running` has ended. (Bash 3.2 has no `wait -n`.)
next_to_end() {
    local one ended="" others="" status=0 suite
    while [ -z "$ended" ]; do
        sleep 0.1
        for one in $running; do
            if ! kill -0 "${one%%:*}" 2>/dev/null; then ended=$one; fi
        done
    done
    for one in $running; do
        if [ "$one" != "$ended" ]; then others="$others $one"; fi
    done
    running=$others
    wait "${ended%%:*}" || status=$?
    suite=${ended#*:}
    printf '\n%s:\n' "$suite"
    cat "$folder/$suite.log"
    case $status in
        0) ;;
        77) skipped="$skipped $suite" ;;
        *) failed="$failed $suite" ;;
    esac
}
