# Needs Python 3.11 or newer with pip, and make. Everything goes to .venv; nothing else is touched.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKLOAD ?= all

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The settings of a running Penstock must not reach the tests or the demo.
unexport $(filter-out PENSTOCK_TEST_%,$(filter PENSTOCK_%,$(.VARIABLES)))

.PHONY: help install demo test check bench constraints clean

help:
	@echo 'make demo         start everything here and run a sample campaign of 1,000 tasks'
	@echo 'make test         run the tests'
	@echo 'make check        check format, lint, types and imports, then run the tests'
	@echo 'make bench        measure throughput, latency and memory (one workload: make bench WORKLOAD=noop)'
	@echo 'make install      only prepare .venv'
	@echo 'make constraints  pin the newest versions of all dependencies (needs uv)'
	@echo 'make clean        remove .venv, caches and the data of the demo'

install: $(READY)

demo: $(READY)
	$(BIN)/penstock demo

test: $(READY)
	$(BIN)/pytest

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest

bench: $(READY)
	$(BIN)/penstock bench $(WORKLOAD)

# Debian's Python has venv without ensurepip: then the pip outside installs into .venv.
$(BIN)/python:
	@test -n '$(PYTHON)' || { echo 'Penstock needs Python 3.11 or newer. Install it, or name it: make PYTHON=/path/to/python3'; exit 1; }
	$(PYTHON) -m venv --clear $(VENV) || $(PYTHON) -m venv --clear --without-pip $(VENV)

# All that pip downloads is pinned by hash, the build backend too; Penstock itself is linked, not copied.
$(READY): pyproject.toml constraints.txt | $(BIN)/python
	@if $(BIN)/python -m pip --version >/dev/null 2>&1; then pip='$(BIN)/python -m pip'; \
	else pip='$(PYTHON) -m pip --python $(BIN)/python'; fi; set -ex; \
	$$pip install --quiet --requirement constraints.txt; \
	$$pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

constraints:
	uv pip compile pyproject.toml --group dev --universal --generate-hashes --no-annotate \
		--no-header --upgrade --quiet --output-file constraints.txt

clean:
	test ! -x $(BIN)/penstock || $(BIN)/penstock down --data penstock-data || true
	rm -rf $(VENV) penstock-data build dist .pytest_cache .mypy_cache .ruff_cache \
		.import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
