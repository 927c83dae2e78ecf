# Every target does its own set-up in .venv; nothing else is needed than Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
ifeq ($(UV),)
  CREATE = $(PYTHON) -m venv $(VENV)
  INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
else
  CREATE = uv venv --quiet --allow-existing --python $(PYTHON) $(VENV)
  INSTALL = uv pip install --quiet --python $(BIN)/python
endif

.PHONY: help demo test check docs bench audit mutants house format clean chromium nginx screenshots

help:  ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "sfumato needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=/path/to/python3.11")'
	$(CREATE)

$(VENV)/.core: pyproject.toml | $(BIN)/python
	$(INSTALL) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.core

demo: $(VENV)/.core  ## release all 2-way marginals and the age CDF of Adult; prints where the report is
	$(BIN)/sfumato demo

# Tests run side by side, one process a core: threads of linear algebra would fight for them.
test: export OMP_NUM_THREADS = 1
test: export OPENBLAS_NUM_THREADS = 1
# Programs that tests start read the byte code of those before them.
test: export PYTHONDONTWRITEBYTECODE =
test: $(VENV)/.dev chromium nginx  ## all fast tests
	$(BIN)/python -m pytest -n auto --dist worksteal

# Where it is missing and may be installed; else the tests of the page are skipped, and say so.
chromium:
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing chromium for the tests of the page"; \
	    timeout 300 sh -c 'apt-get install -y -qq chromium || { apt-get update -qq && apt-get install -y -qq chromium; }' \
	      >/dev/null 2>&1; fi; true

# The proxy of the documents is run in a test, likewise.
nginx:
	@command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] && exit 0; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing nginx for the test of the documented proxy"; \
	    timeout 300 sh -c 'apt-get install -y -qq nginx-light || { apt-get update -qq && apt-get install -y -qq nginx-light; }' \
	      >/dev/null 2>&1; fi; true

screenshots: export SFUMATO_SCREENSHOTS = 1
screenshots: $(VENV)/.dev chromium  ## the pictures of the page in docs/images, from its tests
	$(BIN)/python -m pytest -q tests/page

check: $(VENV)/.dev  ## lint, format, types, import contract
	$(BIN)/ruff check src tests bench examples
	$(BIN)/ruff format --check src tests bench examples
	$(BIN)/mypy
	$(BIN)/lint-imports

# Strict: a broken link or a page that is missing from the navigation fails. tests/whole/test_site.py builds it too.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(VENV)/.dev  ## the documents as a site in site/, which loads nothing from elsewhere
	$(BIN)/python -m mkdocs build --strict --quiet
	@echo "site/index.html; to search it: $(BIN)/python -m http.server --directory site"

audit: $(VENV)/.dev  ## sfumato audit, long statistical tests, and all properties on new examples
	$(BIN)/sfumato audit
	$(BIN)/python -m pytest -m slow tests
	HYPOTHESIS_PROFILE=new $(BIN)/python -m pytest tests/properties

# A sample, in a copy of the tree: about a second of processor time a mutant, after four minutes.
mutants: export OMP_NUM_THREADS = 1
mutants: export OPENBLAS_NUM_THREADS = 1
mutants: $(VENV)/.dev  ## small mistakes in vault and budget: which share do the tests notice?
	$(BIN)/python -m tests.mutants
	$(BIN)/python -m tests.mutants.report .mutants/seed-1-part-1-of-1.jsonl

house: $(VENV)/.dev  ## how far one walks in the source, beside the targets; ARGS=one-importer lists them
	$(BIN)/python docs/house.py $(ARGS)

# Peers that cannot be installed are left out; the benchmark says which.
$(VENV)/.bench: pyproject.toml $(VENV)/.dev
	-$(INSTALL) -e '.[dev,bench]'
	@touch $@

bench: $(VENV)/.bench  ## peers and sfumato side by side, one report; ARGS=--quick takes minutes
	$(BIN)/python -m bench $(ARGS)

format: $(VENV)/.dev  ## rewrite in house style
	$(BIN)/ruff check --fix src tests bench examples
	$(BIN)/ruff format src tests bench examples

clean:  ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis site
