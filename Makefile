# make demo   install and run the whole experiment small (a few minutes)
# make test   everything CI runs
# make gpu    does this machine's GPU run it? 20 minutes; without one, what a CPU can show of it
# make check  format, lint, types: no tests
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A folder with a colon in its name cannot be on the PATH; every other letter can, a space and a quote too.
ifneq ($(findstring :,$(CURDIR)),)
$(error error: $(CURDIR): a colon in the path of the project: no program in it can be found; move it)
endif
PATH := $(CURDIR)/$(BIN):$(PATH)
# Libraries open files of theirs in the locale's encoding, and under LC_ALL=C that is ASCII.
PYTHONUTF8 := 1
export PATH PYTHONUTF8
unexport PYTHONHOME VIRTUAL_ENV

QUICK := config/quick.yaml
PACKAGES := records methods tepo_bench evals models paper report workflow

.PHONY: help demo test unit slow gpu check format install install-test

help:
	@sed -n 's/^# make/make/p' Makefile

# torch first and alone: asked for by another package's range, pip would take the newest build instead of the pinned one.
$(VENV)/.demo: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 13) else "error: Python 3.11 or 3.12 is needed, $(PYTHON) is %d.%d; say PYTHON=python3.11" % sys.version_info[:2])'
	@echo "installing the pinned environment into $(VENV) (once)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q "$$(sed -n 's/^ *"\(torch==[^"]*\)".*/\1/p' pyproject.toml)"
	$(BIN)/python -m pip install -q '.[harness]'
	@touch $@

$(VENV)/.test: $(VENV)/.demo
	$(BIN)/python -m pip install -q '.[test]'
	@touch $@

install: $(VENV)/.demo
install-test: $(VENV)/.test

demo: $(VENV)/.demo
	@# Not `snakemake`: the first line of that script cannot name a Python whose path has a double quote.
	python -m snakemake --configfile $(QUICK)
	@python -m report.show table1 --results results/quick

# The quick run is part of the tests: the slow ones read what it wrote.
test: check unit slow

unit: $(VENV)/.test
	OMP_NUM_THREADS=1 python -m pytest -n 2 --dist loadfile -q -m "not slow and not demo and not vllm" tests

slow: $(VENV)/.test demo
	OMP_NUM_THREADS=1 python -m pytest -n 2 --dist loadfile -q -m "slow or demo" tests

# In the environment that is active, because that of a GPU is not made here: docs/environments.md.
gpu:
	python -m tests.gpu.accept

check: $(VENV)/.test
	ruff format --check $(PACKAGES) tests benchmarks examples setup.py
	ruff check $(PACKAGES) tests benchmarks examples setup.py
	mypy
	mypy examples/*.py
	snakefmt --check Snakefile workflow/rules
	snakemake --lint --quiet
	snakemake --configfile $(QUICK) --lint --quiet

format: $(VENV)/.test
	ruff format $(PACKAGES) tests benchmarks examples setup.py
	ruff check --fix $(PACKAGES) tests benchmarks examples setup.py
	snakefmt Snakefile workflow/rules
