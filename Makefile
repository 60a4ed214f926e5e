# Everything a person or CI runs. `make` alone lists the targets.

CARGO      ?= cargo
TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
EPHESUS    := $(TARGET_DIR)/release/ephesus
SERVE      ?=
DIR        ?= ./ephesus-cluster
ROUNDS     ?= 1000
KEYS       ?= 1000000
CASES      ?= 2000000
COMMANDS   ?= 5000000
SECONDS    ?= 30

# Each place in the code counts how often it is passed: tests/src/coverage.rs.
COVERAGE   := -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
              -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
BENCH       = $(TARGET_DIR)/release/ephesus-bench
BENCH_CASES = set-p16-everysec,set-p1-always,get-p16,get-p1
RESULTS     = --json $(TARGET_DIR)/bench/$(1).json --report $(TARGET_DIR)/bench
HOST        = $(shell rustc -vV | sed -n 's/^host: //p')

export EPHESUS_BIN ?= $(EPHESUS)

.DEFAULT_GOAL := help
.PHONY: help toolchain deps build run cluster test lint fmt bench-tool bench compare bench-cluster bench-migrate benchmarks reference sequences apps demo demo-hot abuse soak soak-cluster soak-migration settings crash fuzz clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

toolchain:
	@./scripts/deps.sh build

deps: ## install what the tests need: redis-server, redis-tools, strace, chromium, and a .venv with clients and applications
	@./scripts/deps.sh

build: toolchain ## build the release binary
	$(CARGO) build --release --locked -p ephesus-engine

run: build ## build, then serve on 127.0.0.1:7379 in the foreground (more flags: make run SERVE="--shards 2")
	exec $(EPHESUS) serve --listen 127.0.0.1:7379 $(SERVE)

cluster: build ## three coordinators, nodes athens, byzantium and cyrene, until Ctrl-C; data in DIR=./ephesus-cluster
	$(CARGO) build --quiet --locked -p ephesus-tests --bin ephesus-cluster
	exec $(TARGET_DIR)/debug/ephesus-cluster --dir $(DIR)

test: deps build ## the whole suite; the system tests run the release binary
	$(CARGO) test --locked --workspace

lint: toolchain ## format check, clippy with warnings denied, and the sizes of documents
	@./scripts/docs-check.sh
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

fmt: ## format the code
	$(CARGO) fmt --all

bench-tool: deps build
	$(CARGO) build --release --locked -p ephesus-bench

bench: bench-tool ## Ephesus, Redis and Valkey side by side in five minutes, and a report to open
	$(BENCH) disk $(TARGET_DIR) --seconds 10 $(call RESULTS,disk)
	$(BENCH) compare --rounds 3 --duration 4 --cases $(BENCH_CASES) $(call RESULTS,compare)
	@echo "The reports: $(TARGET_DIR)/bench/compare.html and disk.html"

compare: bench-tool ## Redis and Valkey against Ephesus, side by side: every case, ten rounds
	$(BENCH) compare --driver redis-benchmark $(call RESULTS,compare)

bench-cluster: bench-tool ## how fast a cluster changes, and what it costs at rest
	$(BENCH) cluster $(call RESULTS,cluster)

bench-migrate: bench-tool ## how fast data moves between two nodes, beside Valkey's atomic slot migration
	$(BENCH) migrate --servers ephesus,valkey,valkey-everysec,valkey-always --full-load $(call RESULTS,migrate)

benchmarks: toolchain ## write docs/benchmarks.md from bench/results/*.json
	$(CARGO) run --quiet --locked -p ephesus-bench -- report

reference: toolchain ## write docs/reference.md and compatibility.md from the flags and the command table
	EPHESUS_BLESS=1 $(CARGO) test --locked -p ephesus-engine --lib -- cli::tests

demo: build ## write from several connections, kill -9, restart, verify every acknowledgement
	$(CARGO) run --quiet --locked -p ephesus-tests --bin ephesus-demo

demo-hot: build ## make partitions hot, and show that they are found, named and moved apart by the cluster itself
	$(CARGO) run --quiet --locked -p ephesus-tests --bin ephesus-demo-hot

fuzz: deps build ## everything that takes bytes from outside, with CASES=2000000 inputs each, guided by what they reach
	RUSTFLAGS="$(COVERAGE)" EPHESUS_FUZZ_CASES=$(CASES) $(CARGO) test --locked -p ephesus-tests --test fuzz \
		--target $(HOST) --target-dir $(TARGET_DIR)/fuzz -- --nocapture --test-threads 1

sequences: deps build ## random commands at Redis, Valkey and Ephesus, COMMANDS=5000000 per kind of port (EPHESUS_SEED=n repeats a run)
	EPHESUS_COMMANDS=$(COMMANDS) $(CARGO) test --locked -p ephesus-tests --test system -- --nocapture --test-threads 2 commands::generated

apps: deps build ## applications and clients as they are shipped, through kill -9 and moves; writes docs/compatibility.md
	@./scripts/apps.sh
	$(CARGO) build --locked --manifest-path tests/applications/clients/Cargo.toml --target-dir $(TARGET_DIR)/apps
	$(CARGO) test --locked -p ephesus-tests --test system -- --nocapture --ignored applications::shipped
	@$(MAKE) --no-print-directory reference

abuse: deps build ## every known attack of clients, SECONDS=30 each, alone and together, with figures
	EPHESUS_ATTACK_SECONDS=$(SECONDS) $(CARGO) test --locked -p ephesus-tests --test system -- --nocapture --test-threads 1 attacks::

soak: deps build ## the crash and abuse tests, long (ROUNDS=1000)
	EPHESUS_CRASH_ROUNDS=$(ROUNDS) $(CARGO) test --locked -p ephesus-tests --test system -- --nocapture --test-threads 1 crash:: abuse:: shutdown::

soak-cluster: deps build ## a stock client writes and reads KEYS=1000000 keys over make cluster's shape while a coordinator is killed
	$(CARGO) build --quiet --locked -p ephesus-tests --bin ephesus-cluster
	EPHESUS_KEYS=$(KEYS) $(CARGO) test --locked -p ephesus-tests --test system -- --nocapture local_cluster::a_stock_client

soak-migration: deps build ## nodes and coordinators die while partitions move (ROUNDS=1000); one of KEYS=1000000 keys moves
	EPHESUS_CRASH_ROUNDS=$(ROUNDS) EPHESUS_KEYS=$(KEYS) $(CARGO) test --locked -p ephesus-tests --test system -- --nocapture --test-threads 1 migration::shapes migration::traces migration::deaths migration::resharded migration::cuts transactions_and_scripts

settings: deps build ## every change of settings between two starts at every state of the log: a long run
	$(CARGO) test --locked -p ephesus-tests --test system -- --nocapture --ignored settings::

crash: build ## only the crash tests, long (ROUNDS=1000, EPHESUS_SEED=n repeats a run)
	EPHESUS_CRASH_ROUNDS=$(ROUNDS) $(CARGO) test --locked -p ephesus-tests --test system -- --nocapture --test-threads 1 crash::

clean: ## remove what was built and installed here (not data directories)
	$(CARGO) clean
	rm -rf .venv
