# Holdfast: everything a person or CI runs. `make` alone lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: help up test test-long check fix bench proto lock clean

help: ## list the commands
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Holdfast needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[dev]'
	@touch $@

up: $(VENV)/.ready ## set up and run Holdfast on embedded defaults
	exec $(BIN)/holdfast serve

test: $(VENV)/.ready ## set up and pass the tests
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup

test-long: $(VENV)/.ready ## the long form: more seeds, more kills, longer runs
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup -m "long or not long"

check: $(VENV)/.ready ## lint, format, types and floors, as CI runs them
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(VENV)/.ready ## format and mend what lint can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready ## measure, as ratios to a reference in the same run
	$(BIN)/python -m bench.store
	$(BIN)/python -m bench.log
	$(BIN)/python -m bench.kafka

proto: $(VENV)/.ready ## generate the etcd messages from proto/etcd.proto
	$(BIN)/python -m grpc_tools.protoc -I proto --python_out=src/holdfast/stores/etcd --pyi_out=src/holdfast/stores/etcd proto/etcd.proto

lock: $(VENV)/.ready ## write constraints.txt from what is installed and passes
	$(BIN)/uv pip freeze --python $(BIN)/python --exclude-editable | grep -v '^pip==' > constraints.txt

clean: ## remove what the commands above made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist src/*.egg-info
