# Fumehood: build, run, test. `make help` lists the targets; each can be repeated at any time.

LISTEN ?= 127.0.0.1:8080
CARGO ?= cargo

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET_DIR)/release/fumehood
DEV := $(TARGET_DIR)/debug/fumehood

.DEFAULT_GOAL := help
.NOTPARALLEL:
.SUFFIXES:

.PHONY: help
help: ## this list
	@echo 'make TARGET, with TARGET one of'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'
	@echo 'Variables: LISTEN (make run; now $(LISTEN)), FUMEHOOD_IMAGES_DIR (where images are kept).'

.PHONY: deps
deps: ## install the system packages that are missing (apt; sudo when not root)
	@sh scripts/install-deps

.PHONY: build
build: deps ## target/release/fumehood and the default image
	@echo '==> building $(RELEASE)'
	@$(CARGO) build --release --locked --bin fumehood
	@echo '==> preparing the default image'
	@$(RELEASE) image build

.PHONY: run
run: build ## build, show a demonstration, then serve on LISTEN until Ctrl-C
	@echo '==> demonstration: demo/analyse.py on demo/us_macro.csv, in a sandbox'
	@$(RELEASE) demo
	@echo '==> serving on $(LISTEN); Ctrl-C ends it'
	@exec $(RELEASE) serve --listen $(LISTEN)

# Libraries, binaries and tests in one go, so that features are unified once and nothing is compiled twice.
.PHONY: dev
dev: deps
	@echo '==> building the workspace and its tests'
	@$(CARGO) build --workspace --locked --lib --bins --tests

.PHONY: test
test: dev ## every test, from nothing: Rust workspace, guest runner, Python SDK
	@echo '==> preparing the default image'
	@$(DEV) image build
	@echo '==> databases for the tests'
	@sh scripts/install-deps databases || echo 'tests that need a database server will be skipped'
	@echo '==> Rust tests'
	@sh scripts/rust-tests
	@echo "==> guest runner's tests, with the image's own Python"
	@image=$$($(DEV) image path default) && \
	PYTHONPATH=guest/runner PYTHONDONTWRITEBYTECODE=1 MPLBACKEND=agg \
	sh scripts/pytest-again "$$image/venv/bin/python" guest/runner/tests
	@echo '==> Python SDK, against a server'
	@sh scripts/sdk-tests $(DEV)

# Debian's stock kernels, each in a machine of its own: root, and a network the first time.
.PHONY: test-vm
test-vm: dev ## the sandbox's tests on Debian 12's and 13's kernels (QEMU)
	@echo '==> Debian 12'
	@tests/vm/run 12 --cache $(TARGET_DIR)/vm
	@echo '==> Debian 13'
	@tests/vm/run 13 --cache $(TARGET_DIR)/vm

.PHONY: test-vm-ci
test-vm-ci: dev ## the part of that which every change has to pass
	@tests/vm/run 12 --cache $(TARGET_DIR)/vm --steps jail,run,attack-root --seconds 3600

.PHONY: test-compat
test-compat: dev ## tests of CPython, numpy, pandas and others, bare and in sandboxes (takes most of an hour)
	@$(DEV) image build
	@tests/compat/run

.PHONY: check
check: fmt-check clippy generated-check ## formatting, lints, generated files

.PHONY: fmt
fmt: ## format the Rust code
	@$(CARGO) fmt --all

.PHONY: fmt-check
fmt-check:
	@echo '==> formatting'
	@$(CARGO) fmt --all --check

.PHONY: clippy
clippy: deps ## lints, warnings are errors
	@echo '==> clippy'
	@$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

.PHONY: generate
generate: dev ## rewrite openapi.json, docs/configuration.md and docs/template.schema.json from the code
	@$(DEV) openapi > openapi.json.part && mv openapi.json.part openapi.json
	@$(DEV) config reference > docs/configuration.md.part && mv docs/configuration.md.part docs/configuration.md
	@$(DEV) template schema > docs/template.schema.json.part && mv docs/template.schema.json.part docs/template.schema.json
	@echo '==> openapi.json, docs/configuration.md and docs/template.schema.json written'

.PHONY: generated-check
generated-check: dev
	@echo '==> openapi.json, docs/configuration.md and docs/template.schema.json against the code'
	@$(DEV) openapi | diff -u openapi.json - || { echo 'openapi.json is stale: run make generate' >&2; exit 1; }
	@$(DEV) config reference | diff -u docs/configuration.md - || { echo 'docs/configuration.md is stale: run make generate' >&2; exit 1; }
	@$(DEV) template schema | diff -u docs/template.schema.json - || { echo 'docs/template.schema.json is stale: run make generate' >&2; exit 1; }

.PHONY: audit
audit: ## dependencies: licences, bans, sources, and advisories where they can be fetched
	@$(CARGO) deny --version >/dev/null 2>&1 || { echo '==> installing cargo-deny'; $(CARGO) install --locked cargo-deny; }
	@echo '==> licences, bans, sources'
	@$(CARGO) deny --locked check --hide-inclusion-graph licenses bans sources
	@echo '==> advisories'
	@mkdir -p $(TARGET_DIR)
	@if $(CARGO) deny --locked fetch db >$(TARGET_DIR)/advisories.log 2>&1; then \
		$(CARGO) deny --locked check advisories; \
	else \
		echo 'SKIPPED advisories: the database could not be fetched (see $(TARGET_DIR)/advisories.log)'; \
	fi

# Seconds for each target.
FUZZ_SECONDS ?= 5
.PHONY: fuzz-replay
fuzz-replay: deps ## build the fuzz targets, try their seeds and a few seconds of new inputs each (FUZZ_SECONDS)
	@CARGO='$(CARGO)' sh scripts/fuzz $(FUZZ_SECONDS)

.PHONY: fuzz
fuzz: ## the same for ten minutes each
	@$(MAKE) --no-print-directory fuzz-replay FUZZ_SECONDS=600

.PHONY: soak
soak: build ## 50,000 executions of every kind, faults included; then what is left over, and memory (SOAK_EXECUTIONS)
	@$(RELEASE) bench churn --requests $(or $(SOAK_EXECUTIONS),50000)

.PHONY: bounds
bounds: build ## time from a limit to the answer that says so, and every stressor of stress-ng (apt-get install stress-ng), against their bounds
	@$(RELEASE) bench limits stress --check

.PHONY: lock
lock: ## renew image/requirements.txt from image/requirements.in
	@sh scripts/lock-requirements

.PHONY: clean
clean: ## remove what was built here; images and data stay
	@$(CARGO) clean
	@find guest sdk -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
