# Holdfast: everything a person or CI runs. `make` alone lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 4
# Without servers there is little to wait for, and each worker collects the tests for itself.
QUICK_WORKERS ?= 3
EXTRAS ?= spark,clickhouse
EXTRAS_MB := 1530
DEV_MB := 2300

# The order is that of tests/conftest.py: what takes longest begins first.
DIST := --dist loadgroup --no-loadscope-reorder -p tests.support.hung_tests
PYTEST := $(BIN)/python -m pytest

# A run of the tests starts hundreds of processes; each would compile everything it imports again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help up test test-quick test-long check fix bench conformance proto lock clean

help: ## list the commands
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Two stamps: running needs neither the test tools nor every engine.
$(VENV)/.uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Holdfast needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version) …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	@touch $@

$(VENV)/.run: $(VENV)/.uv pyproject.toml constraints.txt
	@echo "Installing Holdfast with the extras $(EXTRAS) into $(VENV): about $(EXTRAS_MB) MB, once. Without pipelines: make up EXTRAS= (about 100 MB)."
	$(BIN)/uv pip install --python $(BIN)/python --constraint constraints.txt --editable '.$(if $(EXTRAS),[$(EXTRAS)])'
	@touch $@

$(VENV)/.dev: $(VENV)/.uv pyproject.toml constraints.txt
	@echo "Installing Holdfast with every extra and the test tools into $(VENV): about $(DEV_MB) MB, once."
	$(BIN)/uv pip install --python $(BIN)/python --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/.run

up: $(VENV)/.run ## install what running needs and run a server on embedded defaults
	@echo "Starting holdfast serve; Ctrl-C stops it."
	@exec $(BIN)/holdfast serve

test: $(VENV)/.dev ## every suite in its short form, against real servers
	$(PYTEST) -n $(WORKERS) $(DIST)

test-quick: $(VENV)/.dev ## the tests that start no server: the inner loop
	$(PYTEST) -n $(QUICK_WORKERS) $(DIST) --hypothesis-profile=quick -m "not long and not server and not slow"

test-long: $(VENV)/.dev ## the long form: more seeds, more kills, longer runs
	$(PYTEST) -n $(WORKERS) $(DIST) --hypothesis-profile=long -m "long or not long"

check: $(VENV)/.dev ## lint, format, types and floors, as CI runs them
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(VENV)/.dev ## format and fix what lint can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## measure, as ratios to a reference measured in the same run
	$(BIN)/python -m bench.store
	$(BIN)/python -m bench.log
	$(BIN)/python -m bench.kafka
	$(BIN)/python -m bench.latency
	$(BIN)/python -m bench.scale
	$(BIN)/python -m bench.rest
	$(BIN)/python -m bench.observability
	$(BIN)/python -m bench.mapping
	$(BIN)/python -m bench.cluster
	$(BIN)/python -m bench.failover

conformance: $(VENV)/.dev ## foreign test suites and programs against a server; writes docs/conformance.md
	$(BIN)/python -m conformance

proto: $(VENV)/.dev ## generate the messages of gRPC and etcd from proto/
	$(BIN)/python proto/generate.py

lock: $(VENV)/.dev ## write constraints.txt from the installed versions
	$(BIN)/uv pip freeze --python $(BIN)/python --exclude-editable | grep -v '^pip==' > constraints.txt

clean: ## remove everything the commands above created
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist src/*.egg-info
