# Sourced by the scripts, at the top of the checkout, and by clients/go/environment, which sh reads: no bash in here.
# shellcheck shell=dash disable=SC2034,SC2154 # variables are set here and read there
unset MAKEFLAGS MFLAGS # of the `make` that called
target=${CARGO_TARGET_DIR:-target}
user_cache=${XDG_CACHE_HOME:-$HOME/.cache}/redis-lock
tools_cache=${TOOLS_CACHE:-$user_cache/tools}

# shellcheck disable=SC2059 # the name of a script
say() { printf "${0##*/}: %s\n" "$@" >&2; }
die() { say "$@"; exit 1; }

# Builds ---------------------------------------------------------------------------------------------------------

# Called in a subshell before cargo makes a release build, so that no path of this machine gets into it: panic messages
# name the source files of crates. Here these begin with /crates and /redis-lock, so that the same sources and the same
# compiler make the same bytes in every folder, for every user. The caller's RUSTFLAGS come first. Cargo splits them at
# spaces, so a path with one stays as it is.
release_flags() {
    local registries=${CARGO_HOME:-$HOME/.cargo}/registry/src crates
    # The crates' folder has a name only after the first download.
    ls -d "$registries"/*/ >/dev/null 2>&1 || cargo fetch --quiet
    for crates in "$registries"/*; do
        case $crates in *" "*) ;; *) RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$crates=/crates" ;; esac
    done
    case $PWD in *" "*) ;; *) RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$PWD=/redis-lock" ;; esac
    export RUSTFLAGS
    # Build scripts that compile C would run again, and all behind them, when it changes; no time gets into what they
    # make.
    unset SOURCE_DATE_EPOCH
}

# REDIS_LOCK_MODULE, unless it is set, names the module of the release build.
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

# Python packages with the programs inside; requirements.txt has their hashes.
zig_version=0.15.2
cargo_zigbuild_version=0.22.3
zig_root=$tools_cache/zig-$zig_version-$cargo_zigbuild_version
# The oldest Go that the client for Go takes, as its go.mod says, and the one that is installed where there is none.
go_oldest=1.24
go_version=1.26.6
go_root=$tools_cache/go-$go_version

# Prints the folder of a Go that is new enough: the one on PATH, or the one that was installed here.
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

# Makes `work`, a folder in the cache $1 that ends with the script.
make_work_folder() {
    mkdir -p "$1"
    # Left by a run that was killed.
    find "$1" -maxdepth 1 -name 'work.*' -mtime +0 -exec rm -rf {} +
    work=$(mktemp -d "$1/work.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
}

# An apt of its own in `work`: it installs nothing, and does not change the system's lists. The system's sources, keys
# and proxies hold, unless the settings in the arguments say otherwise.
separate_apt() {
    mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
    : >"$work/apt/status"
    export APT_CONFIG="$work/apt/apt.conf"
    # As root, apt would fetch as a user who may not write here.
    printf '%s;\n' "Dir::State \"$work/apt\"" "Dir::State::status \"$work/apt/status\"" \
        "Dir::Cache \"$work/apt/cache\"" "APT::Sandbox::User \"$(id -un)\"" "$@" >"$APT_CONFIG"
}

# Suites of tests ------------------------------------------------------------------------------------------------

# begin_times; timed PART COMMAND …; show_times TITLE: how long each part took. The file begins with the time at which
# the whole began, in seconds since 1970. Each part adds a line: its time, and its CPU time of the program and of the
# system, in seconds. With TIMES=yes the table becomes the section TITLE of results/test-times.md.
times=$target/times

begin_times() { mkdir -p "$target" && date +%s >"$times"; }

timed() {
    local TIMEFORMAT="$1 %0R %0U %0S"
    shift
    { time "$@" 2>&3; } 3>&2 2>>"$times"
}

show_times() {
    local table
    table=$(awk -v ends="$(date +%s)" '
        NR == 1 { began = $1; print "| part | seconds | CPU seconds |\n| --- | --: | --: |"; next }
        { cpu = $3 + $4; all += cpu; printf "| %s | %d | %d |\n", $1, $2, cpu }
        END { printf "| **all, several at a time** | %d | %d |\n", ends - began, all }' "$times")
    echo "$table"
    [ "${TIMES:-}" != yes ] || echo "$table" | scripts/result --section test-times "$1"
}

# side_by_side FOLDER SUITE …: runs these functions in parallel, as suites mostly wait for servers, at most AT_MOST
# (all) at a time, and prints the output of each when it ends. Appends to `failed` the name of a suite that failed, to
# `skipped` of one that ended with 77. Each suite is a process group of its own, so that Ctrl-C ends it with its
# servers.
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

# Repeats the end of the output of each suite in `failed`, since the other suites' output follows a failure.
show_failures() {
    local suite
    for suite in $failed; do
        printf '\nThe end of %s/%s.log:\n' "$logs" "$suite"
        tail -n 30 "$logs/$suite.log" | cut -c 1-300
    done >&2
}

# Waits until one of `running` has ended. (Bash 3.2 has no `wait -n`.)
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
