# Everything a developer or a user runs. `make help` lists it.
# Needs python3 (3.11 or newer, with venv), git, make and a package index; all else goes into .venv.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq  # errors only
# A lock file names all there is: nothing is left to resolve, and a new release of something changes nothing.
LOCKED := --no-deps --require-hashes --no-compile
UV ?= $(firstword $(wildcard $(BIN)/uv) uv)

# An environment that is missing, or whose interpreter has gone, is made anew.
BROKEN := $(shell $(BIN)/python -c '' 2>/dev/null || echo FORCE)
RUNTIME := $(VENV)/.installed-runtime
DEV := $(VENV)/.installed-dev
BENCH := $(VENV)/.installed-bench

.PHONY: help install dev demo test test-all lint docs dist format coverage bench soak lock hooks clean FORCE

help: ## List the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
	    printf '  make %-10s %s\n' "$$name" "$$text"; done

install: $(RUNTIME) ## Make .venv with the locked dependencies and the command .venv/bin/thetad

dev: $(DEV) ## The same plus the tools for tests, lint and benchmarks

demo: $(RUNTIME) ## Identify a simulated arm, live and in batch, and print how well it went
	@$(BIN)/thetad demo $(DEMO_ARGS)

# Unit and process tests share nothing and run beside each other; what keeps a clock runs alone.
PYTEST := $(BIN)/python -m pytest -q
PARALLEL := tests/unit tests/process -n logical --dist worksteal

ifdef PYTEST_ARGS
test: $(DEV) ## Unit and process tests but the slowest, a smoke test of daemon and buses (PYTEST_ARGS="..." runs others)
	@$(PYTEST) $(PYTEST_ARGS)
else
test: $(DEV)
	@$(PYTEST) $(PARALLEL) -m "not slow"
	@$(PYTEST) tests/daemon tests/bus -m smoke
endif

test-all: $(DEV) ## Every test but those of `make soak` (THETAD_DATA names the real recordings)
	@$(PYTEST) $(PARALLEL)
	@$(PYTEST) tests/bus
	@$(PYTEST) tests/daemon

lint: $(DEV) ## Style, format, types, import direction, the packages' doors, prose
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python .ci/check_doors.py
	@$(BIN)/python .ci/check_prose.py

docs: $(DEV) ## The documentation as a site in build/site; a dead link or an unknown parameter is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

dist: $(DEV) ## Sdist and wheel in dist/, of what git tracks, built and checked
	@rm -rf dist && mkdir dist
	@$(BIN)/python .ci/build_dist.py dist
	@THETAD_DIST="$$PWD/dist" $(PYTEST) tests/process/test_wheel.py
	@ls dist

format: $(DEV) ## Format the code and mend what ruff can mend by itself
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

coverage: $(DEV) ## Line coverage with kernels interpreted (slow)
	@NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q --timeout 1800 -m "not slow" \
	    --cov=rt_core --cov=drivers --cov=sim_backend --cov=service --cov=thetad --cov-report=term --cov-report=html $(PYTEST_ARGS)

bench: $(BENCH) ## Speed and accuracy beside peers, percentiles, statistical coverage (BENCH_ARGS="..." is passed on)
	@$(BIN)/python benchmarks/run.py $(BENCH_ARGS)

soak: $(DEV) ## More arms and seeds, 100 kills of what runs jobs, a million messages of random bytes, hours of a running daemon (DURATION=seconds)
	@THETAD_SOAK=1 $(PYTEST) -m soak
	@THETAD_KILLS=100 $(PYTEST) -s tests/process/jobs/test_daemon_kills.py
	@THETAD_FUZZ=1000000 $(PYTEST) --timeout 7200 tests/daemon/sockets/test_random_messages.py \
	    tests/process/test_stream_faults.py tests/bus/ethercat/test_frame_filter.py \
	    tests/bus/ethercat/test_damaged_frames.py tests/bus/ads/test_ads_damage.py
	@$(BIN)/python benchmarks/disk_soak.py
	@$(BIN)/python benchmarks/soak.py $(SOAK_ARGS)

hooks: $(DEV) ## Let git run the checks before each commit
	@$(BIN)/pre-commit install

# The build requirements are locked with the rest, because the project is installed without build isolation.
lock: ## Renew the lock files from pyproject.toml (needs uv; LOCK_ARGS=--upgrade takes newer releases)
	@command -v $(UV) >/dev/null || { echo "make lock needs uv: $(BIN)/python -m pip install uv" >&2; exit 1; }
	@build=$$($(PYTHON) -c "$$READ_BUILD_REQUIREMENTS"); \
	compile() { $(UV) pip compile --quiet --python-version 3.11 --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(LOCK_ARGS) \
	    pyproject.toml - "$$@" <<<"$$build" >/dev/null; }; \
	compile --output-file requirements.lock; \
	compile --extra dev --constraint requirements.lock --output-file requirements-dev.lock; \
	compile --extra dev --extra bench --constraint requirements-dev.lock --output-file requirements-bench.lock

define READ_BUILD_REQUIREMENTS
import tomllib
with open("pyproject.toml", "rb") as file:
    print(*tomllib.load(file)["build-system"]["requires"], sep="\n")
endef
export READ_BUILD_REQUIREMENTS

clean: ## Remove .venv and everything else that was made
	@rm -rf $(VENV) build dist *.egg-info .coverage htmlcov \
	    .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUNTIME): requirements.lock pyproject.toml $(BROKEN)
	@command -v $(PYTHON) >/dev/null || { echo "thetad needs Python 3.11 or newer; there is no '$(PYTHON)'" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "thetad needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another one:" \
	        "make PYTHON=python3.12 $(firstword $(MAKECMDGOALS))" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "'$(PYTHON)' cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "thetad: installing into $(VENV) (a minute or two the first time)" >&2
	@$(if $(BROKEN),$(PYTHON) -m venv --clear $(VENV))
	@$(PIP) install $(LOCKED) -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q -j 0 -x '/tests?/' $(VENV)/lib  # on all processors; pip would use one
	@touch $@

$(DEV): requirements-dev.lock $(RUNTIME)
	@echo "thetad: installing the development tools into $(VENV)" >&2
	@$(PIP) install $(LOCKED) -r requirements-dev.lock
	@touch $@

$(BENCH): requirements-bench.lock requirements-bench-without-dependencies.lock $(DEV)
	@echo "thetad: installing the benchmarks' peers into $(VENV)" >&2
	@$(PIP) install $(LOCKED) -r requirements-bench.lock
	@$(PIP) install $(LOCKED) -r requirements-bench-without-dependencies.lock
	@touch $@

FORCE:
