# Everything runs in .venv, on an installed copy of the package. Each target sets that up itself.
#   make test PYTHON=python3.12        another interpreter
#   make test ARGS="-k table"          more arguments for pytest, demo or bench

PYTHON ?= python3
ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet -c constraints.txt
PARTS := $(patsubst %/__init__.py,%,$(wildcard */__init__.py))
# Folders count too: their time changes when a file is removed. `bench/.` is the folder, `bench` the target below.
SOURCES := $(shell find $(addsuffix /.,$(PARTS)) -name __pycache__ -prune -o -print)

DEPENDENCIES := $(VENV)/.dependencies
PACKAGE := $(VENV)/.package

.PHONY: help demo test lint bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(PACKAGE) ## Train a small model in each variant, print one table (under 3 minutes)
	$(PY) -m lamina demo $(ARGS)

test: $(PACKAGE) ## Run the examples in docstrings, then the tests, on the installed package
	$(PY) -m pytest --pyargs lamina --doctest-modules -q
	$(PY) -m pytest -n 2 $(ARGS)

lint: $(PACKAGE) ## Check style, format and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy --strict -p lamina

bench: $(PACKAGE) ## Measure what each layer of wrapping costs
	$(PY) -m lamina bench layers $(ARGS)

clean: ## Remove .venv, caches and what the targets wrote
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f lamina-demo.json lamina-demo.png
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The dependencies take minutes, so they are installed again only when their lists change.
$(DEPENDENCIES): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("lamina needs Python 3.10 or newer, this is " \
	    + sys.version.split()[0] + ": make PYTHON=/path/to/python3")'
	@echo 'Setting up $(VENV): once, a minute or more'
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) setuptools
	$(PIP) --no-build-isolation '.[dev]'
	@touch $@

# The package itself takes seconds. A left-over build folder would put removed modules into the wheel.
$(PACKAGE): $(DEPENDENCIES) $(SOURCES) README.md LICENSE
	@rm -rf build lamina.egg-info
	$(PIP) --no-build-isolation --no-deps --force-reinstall .
	@rm -rf build lamina.egg-info
	@touch $@
