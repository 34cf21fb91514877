# The doors into this repository; `make help` lists them. It needs GNU make 3.81 (what macOS has) and a Rust toolchain:
# the rest is installed by scripts/setup, and only where it is missing.

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
# Debian's unit for redis-server may load nothing from outside /usr/lib and /lib.
MODULE_DIR = $(PREFIX)/lib/redis/modules

# Hundreds of clients need more open files than the 256 that macOS gives a shell.
MANY_FILES = ulimit -S -n 4096 2>/dev/null || true
# Tests are built in a profile of their own (Cargo.toml), and load the module of the release.
QUICK = --profile quick
RELEASED = REDIS_LOCK_MODULE=$${REDIS_LOCK_MODULE:-$(abspath $(MODULE))}
TIMES = set -e; . scripts/common.sh;
# Where they cannot be had, their tests say so and are skipped.
METRICS_TOOLS = scripts/metrics-tools >/dev/null || true

# What `make help` shows, each group behind its title.
FIRST = Use_it run demo build install Test_it test test-module test-clients test-all check lint \
	Measure_it bench-quick bench Hand_it_out dist test-dist book
# Prints the words of `wanted`: targets with what stands behind two hashes, others as titles. Without it all targets.
HELP = -F ':.*\#\# ' '/^[a-z-]+:.*\#\# / { text[$$1] = $$2; all = all " " $$1 } \
	END { \
		count = split(wanted ? wanted : all, words, " "); \
		for (i = 1; i <= count; i++) { \
			word = words[i]; \
			if (word in text) printf "  make %-19s %s\n", word, text[word]; \
			else { gsub("_", " ", word); print word } \
		} \
	}' Makefile

# Scripts, wherever they lie. A program in a page begins so too.
SCRIPTS = git grep -lE '^\#!/' -- ':!*.md'
# What bash 3.2 does not know.
BASH_4 = 'mapfile|readarray|(declare|local) -[a-zA-Z]*[An]|\$$\{[A-Za-z_]+(\[[^]]*\])?[,^@]|\|&|&>>|coproc|BASHPID|;;&'

.PHONY: help help-all setup build run test rules-tested test-module module-tested test-clients module-built \
	tests-built clients-built pages-tested test-clients-faults test-adopt test-all test-newest check faults servers \
	mutants fuzz memcheck lint install dist test-dist book demo bench bench-quick bench-adopt bench-clients bench-peers

help: ## the targets that most people need
	@awk -v wanted="$(FIRST)" $(HELP)
	@echo "make help-all has the others; scripts/package makes Debian packages (deb) and images for containers (images)."

help-all: ## all targets
	@awk $(HELP)

setup: ## install all that is missing here (apt-get or Homebrew)
	@scripts/setup compiler libclang redis cli faketime python node go java openssl lint languages

build: ## the release module
	@scripts/setup compiler libclang
	scripts/build

run: ## redis-server with the module, in the foreground (PORT=6379, REDIS_SERVER=redis-server)
	@PORT=$(PORT) MODULE=$(MODULE) scripts/run

# The release build of the module keeps one core busy for a minute: beside it all else is compiled and installed, and
# the rules are tested. Then come suites that wait for servers: as many beside each other as keep both cores busy.
test: ## every test, against real servers (REDIS_SERVER=path for another server)
	@scripts/setup compiler libclang redis cli faketime deb python node go java openssl languages
	@$(TIMES) begin_times
	@$(MAKE) --no-print-directory -j 2 module-built rules-tested
	@$(MAKE) --no-print-directory -j 2 module-tested pages-tested
	@$(MANY_FILES); scripts/test-clients
	@$(TIMES) show_times "make test"

rules-tested: tests-built clients-built
	scripts/test-clients install
	scripts/test-module rules

test-module: ## the tests of the module and of the tools beside it
	@scripts/setup compiler libclang redis cli faketime deb
	@$(TIMES) begin_times
	@$(MAKE) --no-print-directory -j 2 module-built tests-built
	@scripts/test-module rules
	@$(MAKE) --no-print-directory module-tested
	@$(TIMES) show_times "make test-module"

module-tested:
	@$(METRICS_TOOLS)
	@scripts/package deb module || [ $$? = 77 ]
	@$(MANY_FILES); scripts/test-module

test-clients: module-built clients-built ## the clients and the command line; needs PyPI, npm, Maven and Go's modules
	@$(MANY_FILES); scripts/test-clients install && scripts/test-clients pages && scripts/test-clients

module-built:
	@scripts/setup compiler libclang redis cli faketime deb
	scripts/build

tests-built:
	@scripts/setup compiler libclang
	scripts/test-module build

# Only the release of the module is under test: the command line is packed as the tests have it.
clients-built:
	@scripts/setup compiler libclang redis cli python node go java openssl deb languages
	scripts/test-clients build

pages-tested:
	@$(MANY_FILES); scripts/test-clients pages

test-clients-faults: ## all clients under faults for five minutes (FAULTS_SECONDS), into results/clients-faults.md
	@scripts/setup compiler libclang redis cli python node go java
	scripts/build
	@$(MANY_FILES); clients/faults/run

test-adopt: ## unchanged lock libraries on servers that adopt their keys: results/adopt-libraries.md (SERVERS)
	@scripts/setup compiler libclang redis python
	scripts/build
	@$(MANY_FILES); $(RELEASED) tests/adopt/protected
	@$(MANY_FILES); $(RELEASED) tests/adopt/run

test-all: ## on every server and platform, clients on every version; what was skipped (ALL=servers platforms clients)
	@scripts/setup compiler libclang redis cli faketime python node go java
	@$(METRICS_TOOLS)
	@$(MANY_FILES); scripts/test-all $(or $(ALL),servers platforms clients)

test-newest: ## a part of the module's tests on Redis 8.2 and Valkey 9.1: every function of the module API
	@scripts/setup compiler libclang redis cli faketime
	@$(MANY_FILES); scripts/test-all newest

check: ## random schedules beside the model (CHECK=rules servers), and beside the rules as they were (CHECK=base)
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

faults: ## crashes, power cuts, partitions, upgrades, a soak, under load on each server: results/faults.md (FAULTS=soak)
	@scripts/setup compiler libclang redis cli
	@$(MANY_FILES); scripts/faults $(FAULTS)

servers: ## Redis 8.0, 8.2, 8.6, Valkey 8.1, 9.1: from Debian's sources, Python packages into a cache (SERVERS_CACHE)
	@scripts/servers

mutants: ## what tests catch of a thousand changes to the rules, twenty to the shell (MUTANTS=rules, MUTANTS=shell)
	@scripts/setup compiler libclang redis cli faketime
ifneq ($(MUTANTS),shell)
	@scripts/mutants
endif
ifneq ($(MUTANTS),rules)
	@$(MANY_FILES); scripts/mutants-shell
endif

fuzz: ## libFuzzer on arguments, payloads, effects, schedules: an hour (FUZZ_SECONDS, FUZZ_JOBS=1); needs nightly Rust
	@scripts/setup compiler
	@fuzz/run

memcheck: ## integration tests with every server under valgrind's memcheck: no error, no leak (MEMCHECK=filters)
	@scripts/setup compiler libclang servers valgrind
	@$(MANY_FILES); scripts/memcheck $(MEMCHECK)

lint: ## formatting, clippy, rustdoc, pictures, figures; gofmt, go vet, staticcheck; javac; a warning is an error
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
	cargo clippy $(QUICK) --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc $(QUICK) --workspace --no-deps --document-private-items
	clients/go/lint || [ $$? = 77 -a "$(NOTHING_SKIPPED)" != yes ]
	clients/java/lint || [ $$? = 77 -a "$(NOTHING_SKIPPED)" != yes ]

# install(1) puts a new file in place of the old one; cp would write into the library that a running server has mapped.
install: ## the module to where redis-server may load it (PREFIX=/usr, DESTDIR)
	@test -f $(MODULE) || $(MAKE) --no-print-directory build
	install -d "$(DESTDIR)$(MODULE_DIR)"
	install -m 755 $(MODULE) "$(DESTDIR)$(MODULE_DIR)/"
	@echo
	@echo "Add to redis.conf (on Debian /etc/redis/redis.conf), and restart redis-server:"
	@echo "    loadmodule $(MODULE_DIR)/$(notdir $(MODULE))"
	@echo "    maxmemory-policy noeviction"
	@echo "redis.conf.example has the other settings, each with its reason."

dist: ## all that a release hands out, in target/dist: archives, packages, checksums (DIST_PLATFORMS)
	@scripts/setup compiler libclang deb python node go java
	@scripts/package dist

test-dist: ## what `make dist` made, and the images: contents, licences, first lock, the same bytes again (DIST=images)
	@scripts/setup compiler libclang redis cli deb python node go java
	@scripts/test-dist $(DIST)

book: ## docs/ as a book with a search, by mdBook, in target/book/book; every link and page checked
	@scripts/setup compiler node python browser
	@scripts/book

demo: ## ten tickets, 500 buyers at once: no lock, a polled lock, the same adopted, LOCK.ACQUIRE
	@scripts/setup compiler libclang redis
	scripts/build
	@$(MANY_FILES); cargo run --quiet --release --example demo

bench: ## what a lock costs beside other ways to lock, into results/benchmarks.md (SERVERS, REDIS_LOCK_BASE)
	@scripts/setup compiler libclang redis valgrind
	scripts/build module floor
	@$(MANY_FILES); cargo bench --bench locks -- $(BENCH)
	scripts/pictures
	@[ -n "$(BENCH)" ] || scripts/result benchmarks

bench-quick: ## a part of `make bench` in two or three minutes; it prints the figures and writes nothing
	@scripts/setup compiler libclang redis
	scripts/build module floor
	@$(MANY_FILES); cargo bench --bench locks -- --quick $(BENCH)

bench-adopt: ## unchanged pollers with adoption off and on, Redisson next to native clients (ADOPT_CACHE)
	@scripts/setup compiler libclang redis python java
	scripts/build
	@$(MANY_FILES); $(RELEASED) tests/adopt/pollers $(BENCH)
	@$(MANY_FILES); $(RELEASED) tests/adopt/redisson $(BENCH)

bench-clients: ## each client's lock beside its ecosystem's usual one, into results/benchmarks-clients.md
	@scripts/setup compiler libclang redis cli python node go java
	scripts/build
	@$(MANY_FILES); clients/bench $(BENCH)

bench-peers: ## beside etcd, ZooKeeper, Postgres, Redisson, …: results/peers.md; Linux, root; BENCH=--quick prints
	@scripts/setup compiler libclang redis cli protoc peers lint python go java
	scripts/build
	cargo clippy --manifest-path benches/peers/Cargo.toml --target-dir $(TARGET)/peers --all-targets -- -D warnings
	@$(MANY_FILES); benches/peers/run $(BENCH)
