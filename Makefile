# Every target works alone on a fresh machine: it depends on the stamp of `sync`, which makes .venv from
# python3.11 (or python3) and installs the pinned tools, torch and scoutd itself. Nothing else is needed.

SHELL := /bin/bash
# The first that runs: a version chooser's python3.11 may exist and refuse.
PYTHON ?= $(shell for each in python3.11 python3; do $$each -c 'import venv' 2>&- && echo $$each && break; done)
BIN := .venv/bin
STAMP := .venv/.synced
PROTOS := $(wildcard proto/v1/*.proto)
FAST := $(wildcard tests/unit tests/paper tests/contract tests/property)
REAL := tests/simulation tests/shim tests/e2e
ALONE := tests/chaos

# One thread per trainer: the tests run four of them on whatever the machine has.
export OMP_NUM_THREADS ?= 1

.PHONY: sync demo test check proto bench clean
.DEFAULT_GOAL := check

sync: $(STAMP)

$(STAMP): pyproject.toml requirements-dev.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --requirement requirements-dev.txt --editable '.[dev]'
	touch $@

# A small transformer on 4 CPU ranks, one of which hangs; the verdict says which.
demo: $(STAMP)
	$(BIN)/scoutd demo

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPYPATH=typings $(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest --quiet $(FAST)

# Jobs mostly wait, for torch to load and for time-outs: two at a time. Hosts and agent losses run alone.
test: check
	$(BIN)/pytest -n 2 $(REAL)
	$(BIN)/pytest $(ALONE)

# Generated code is committed; tests/contract compares it with a fresh generation.
proto: $(STAMP)
	cd typings && ../$(BIN)/python -m grpc_tools.protoc -I scoutd/proto=../proto \
	    --python_out=. --pyi_out=. --grpc_python_out=. $(addprefix scoutd/,$(PROTOS))

bench: $(STAMP)
	for script in tests/bench/*.py; do echo "== $$script"; $(BIN)/python $$script --json || exit 1; done

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find agent daemon proto shim tests -name __pycache__ -type d -prune -exec rm -rf {} +
