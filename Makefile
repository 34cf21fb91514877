# Entry points of this repository; `make help` lists them. Requires GNU make 3.81 (the version on macOS) and a Rust
# toolchain. scripts/setup installs everything else, and only if it is missing.

PORT ?= 6379
BENCH ?=
TARGET := $(or $(CARGO_TARGET_DIR),target)
ifeq ($(shell uname -s),Darwin)
MODULE := $(TARGET)/release/libredis_lock.dylib
PREFIX ?= $(shell brew --prefix)
else
MODULE := $(TARGET)/release/libredis_lock.so
PREFIX ?= /usr
endif
# Debian's systemd unit for redis-server only lets it load libraries from /usr/lib and /lib.
MODULE_DIR = $(PREFIX)/lib/redis/modules

# Hundreds of clients need more open files than the 256 that macOS gives a shell.
MANY_FILES = ulimit -S -n 4096 2>/dev/null || true
# Tests are built in a separate profile (Cargo.toml) but load the release build of the module.
QUICK = --profile quick
RELEASED = REDIS_LOCK_MODULE=$${REDIS_LOCK_MODULE:-$(abspath $(MODULE))}
SHOW_TIMES = set -e; . scripts/common.sh;
# Tests that need these tools are skipped, with a message, if they are unavailable.
METRICS_TOOLS = scripts/metrics-tools >/dev/null || true

# The targets that `make help` shows, each group after its title.
FIRST = Use_it run demo build install Test_it test test-module test-clients test-all check lint \
	Measure_it bench-quick bench Hand_it_out dist test-dist book
# Prints the words in `wanted`: targets with the text after their two hashes, other words as titles. Default: all
# targets.
HELP = -F ':.*\#\# ' '/^[a-z-]+:.*\#\# / { text[$$1] = $$2; all = all " " $$1 } \
	END { \
		count = split(wanted ? wanted : all, words, " "); \
		for (i = 1; i <= count; i++) { \
			word = words[i]; \
			if (word in text) printf "  make %-19s %s\n", word, text[word]; \
			else { gsub("_", " ", word); print word } \
		} \
	}' Makefile

# All files with a shebang. Pages are excluded because the programs in them have one too.
SCRIPTS = git grep -lE '^\#!/' -- ':!*.md'
# Syntax that bash 3.2 does not support.
BASH_4 = 'mapfile|readarray|(declare|local) -[a-zA-Z]*[An]|\$$\{[A-Za-z_]+(\[[^]]*\])?[,^@]|\|&|&>>|coproc|BASHPID|;;&'

.PHONY: help help-all setup build run test rules-tested test-module module-packaged test-clients module-built \
	tests-built clients-built clients-installed test-clients-faults test-adopt test-all test-newest \
	check faults servers mutants fuzz memcheck lint install dist test-dist book demo bench bench-quick bench-adopt \
	bench-clients bench-peers

help: ## the most common targets
	@awk -v wanted="$(FIRST)" $(HELP)
	@echo "make help-all has the others; scripts/package makes Debian packages (deb) and images for containers (images)."

help-all: ## all targets
	@awk $(HELP)

setup: ## install missing tools (apt-get or Homebrew)
	@scripts/setup compiler libclang redis cli faketime python node go java openssl lint languages

build: ## build the release module
	@scripts/setup compiler libclang
	scripts/build

run: ## start redis-server with the module, in the foreground (PORT=6379, REDIS_SERVER=redis-server)
	@PORT=$(PORT) MODULE=$(MODULE) scripts/run

# The release build of the module keeps one core busy for a minute. In parallel, everything else is compiled and
# installed, and the unit tests run: all at once, because cargo compiles only one of the two in target/quick at a time.
# The suites that mostly wait for servers follow, enough at a time to keep both cores busy.
test: ## run every test, against real servers (REDIS_SERVER=path for another server)
	@scripts/setup compiler libclang redis cli faketime deb python node go java openssl languages
	@$(SHOW_TIMES) begin_times
	@$(MAKE) --no-print-directory -j 4 module-packaged rules-tested clients-built clients-installed
	@$(MANY_FILES); scripts/test-clients with-module
	@$(SHOW_TIMES) show_times "make test"

test-module: ## run the tests of the module and its tools
	@scripts/setup compiler libclang redis cli faketime deb
	@$(SHOW_TIMES) begin_times
	@$(MAKE) --no-print-directory -j 2 module-packaged rules-tested
	@$(MANY_FILES); scripts/test-module
	@$(SHOW_TIMES) show_times "make test-module"

test-clients: module-built clients-built clients-installed ## test the clients and the CLI; needs PyPI, npm, Maven, Go
	@$(MANY_FILES); scripts/test-clients

module-built:
	@scripts/setup compiler libclang redis cli faketime deb
	scripts/build

# What the module's tests need besides the module.
module-packaged: module-built
	@$(METRICS_TOOLS)
	@scripts/package deb module || [ $$? = 77 ]

tests-built:
	@scripts/setup compiler libclang
	scripts/test-module build

rules-tested: tests-built
	scripts/test-module rules

# Only the module is tested as a release build. The CLI is packaged from the test profile, which builds faster.
clients-built:
	@scripts/setup compiler libclang redis cli python node go java openssl deb languages
	scripts/test-clients build

clients-installed:
	@scripts/setup compiler libclang redis cli python node go java openssl deb languages
	scripts/test-clients install

test-clients-faults: ## all clients under faults for five minutes (FAULTS_SECONDS); writes results/clients-faults.md
	@scripts/setup compiler libclang redis cli python node go java
	scripts/build
	@$(MANY_FILES); clients/faults/run

test-adopt: ## unchanged lock libraries on adopting servers (SERVERS); writes results/adopt-libraries.md
	@scripts/setup compiler libclang redis python
	scripts/build
	@$(MANY_FILES); $(RELEASED) tests/adopt/protected
	@$(MANY_FILES); $(RELEASED) tests/adopt/run

test-all: ## every server, platform and client version; lists skipped tests (ALL=servers platforms clients)
	@scripts/setup compiler libclang redis cli faketime python node go java
	@$(METRICS_TOOLS)
	@$(MANY_FILES); scripts/test-all $(or $(ALL),servers platforms clients)

test-newest: ## a subset of the module's tests on Redis 8.2 and Valkey 9.1; covers every module API function in use
	@scripts/setup compiler libclang redis cli faketime
	@$(MANY_FILES); scripts/test-all newest

check: ## compare random schedules with the model (CHECK=rules servers) or with an earlier engine (CHECK=base)
ifeq ($(CHECK),base)
	@scripts/setup compiler
	scripts/test-module base $(BASE)
else
	@scripts/setup compiler libclang redis
ifneq ($(CHECK),servers)
	LOCK_STEPS=5000000 LOCK_EVERY_SECONDS=60 cargo test --release -p lock testing -- --nocapture
endif
ifneq ($(CHECK),rules)
	cargo build $(QUICK) --workspace
	LOCK_STEPS=$${LOCK_STEPS:-200000} scripts/each-server cargo test --quiet $(QUICK) --test it model:: -- --nocapture
endif
endif

faults: ## crashes, power cuts, partitions, upgrades, a soak on each server (FAULTS=soak); writes results/faults.md
	@scripts/setup compiler libclang redis cli
	@$(MANY_FILES); scripts/faults $(FAULTS)

servers: ## fetch or build Redis 8.0, 8.2, 8.6 and Valkey 8.1, 9.1 into a cache (SERVERS_CACHE)
	@scripts/servers

mutants: ## mutation tests: a thousand changes to lock and command, twenty to the shell (MUTANTS=rules, MUTANTS=shell)
	@scripts/setup compiler libclang redis cli faketime
ifneq ($(MUTANTS),shell)
	@scripts/mutants
endif
ifneq ($(MUTANTS),rules)
	@$(MANY_FILES); scripts/mutants-shell
endif

fuzz: ## fuzz arguments, payloads, effects and schedules for an hour (FUZZ_SECONDS, FUZZ_JOBS=1); needs nightly Rust
	@scripts/setup compiler
	@fuzz/run

memcheck: ## integration tests with servers under valgrind; an error or a leak fails (MEMCHECK=filters)
	@scripts/setup compiler libclang servers valgrind
	@$(MANY_FILES); scripts/memcheck $(MEMCHECK)

lint: ## formatting, clippy, rustdoc, pictures, figures; gofmt, go vet, staticcheck; javac; warnings are errors
	@scripts/setup compiler libclang lint python go java
	cargo fmt --all --check
	cargo fmt --manifest-path benches/peers/Cargo.toml --check
	@echo no line past 120 columns; \
		! LC_ALL=C.UTF-8 grep -nE '^.{121,}' \
			$$(git ls-files '*.rs' '*.toml' '*.py' '*.ts' Makefile scripts '*/environment'; $(SCRIPTS) ':!scripts')
	@echo 'no bash newer than the 3.2 of macOS'; \
		! grep -nE $(BASH_4) $$(git grep -lE '^#!.*bash' -- ':!*.md') scripts/common.sh
	scripts/pictures --check
	scripts/result --check
	scripts/shape --check
	benches/versions
	cargo clippy $(QUICK) --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc $(QUICK) --workspace --no-deps --document-private-items
	clients/go/lint || [ $$? = 77 -a "$(NOTHING_SKIPPED)" != yes ]
	clients/java/lint || [ $$? = 77 -a "$(NOTHING_SKIPPED)" != yes ]

# install(1) replaces the file; cp would overwrite the library that a running server has mapped.
install: ## install the module where redis-server can load it (PREFIX=/usr, DESTDIR)
	@test -f $(MODULE) || $(MAKE) --no-print-directory build
	install -d "$(DESTDIR)$(MODULE_DIR)"
	install -m 755 $(MODULE) "$(DESTDIR)$(MODULE_DIR)/"
	@echo
	@echo "Add to redis.conf (on Debian /etc/redis/redis.conf), and restart redis-server:"
	@echo "    loadmodule $(MODULE_DIR)/$(notdir $(MODULE))"
	@echo "    maxmemory-policy noeviction"
	@echo "redis.conf.example has the other settings, each with its reason."

dist: ## build all release artifacts into target/dist: archives, packages, checksums (DIST_PLATFORMS)
	@scripts/setup compiler libclang deb python node go java
	@scripts/package dist

test-dist: ## test release artifacts and images: contents, licences, first lock, reproducibility (DIST=images)
	@scripts/setup compiler libclang redis cli deb python node go java
	@scripts/test-dist $(DIST)

book: ## build docs/ as a searchable mdBook in target/book/book; checks every link and page
	@scripts/setup compiler node python browser
	@scripts/book

demo: ## ten tickets, 500 concurrent buyers: no lock, a polled lock, the same adopted, LOCK.ACQUIRE
	@scripts/setup compiler libclang redis
	scripts/build
	@$(MANY_FILES); $(RELEASED) cargo run --quiet --release --package redis-lock-demo

bench: ## cost of a lock compared with other ways to lock; writes results/benchmarks.md (SERVERS, REDIS_LOCK_BASE)
	@scripts/setup compiler libclang redis valgrind
	scripts/build module floor
	@$(MANY_FILES); cargo bench --bench locks -- $(BENCH)
	scripts/pictures
	@[ -n "$(BENCH)" ] || scripts/result benchmarks

# With the libraries as the tests have them, which are compiled already. The modules are those of the release.
bench-quick: ## part of `make bench` in two minutes; prints the figures and writes no file
	@scripts/setup compiler libclang redis
	scripts/build module floor
	@$(MANY_FILES); $(RELEASED) REDIS_LOCK_FLOOR=$(abspath $(subst redis_lock,redis_lock_floor,$(MODULE))) \
		cargo bench $(QUICK) --config profile.quick.package.redis-lock.opt-level=1 --bench locks -- --quick $(BENCH)

bench-adopt: ## unchanged polling clients with adoption off and on, Redisson next to native clients (ADOPT_CACHE)
	@scripts/setup compiler libclang redis python java
	scripts/build
	@$(MANY_FILES); $(RELEASED) tests/adopt/pollers $(BENCH)
	@$(MANY_FILES); $(RELEASED) tests/adopt/redisson $(BENCH)

bench-clients: ## what a lock costs in each language and library; writes results/benchmarks-clients.md
	@scripts/setup compiler libclang redis cli python node go java
	scripts/build
	@$(MANY_FILES); clients/bench $(BENCH)

bench-peers: ## vs. etcd, ZooKeeper, Postgres, Redisson, …; writes results/peers.md (BENCH=--quick prints); Linux, root
	@scripts/setup compiler libclang redis cli protoc peers lint python go java
	scripts/build
	cargo clippy --manifest-path benches/peers/Cargo.toml --target-dir $(TARGET)/peers --all-targets -- -D warnings
	@$(MANY_FILES); benches/peers/run $(BENCH)
