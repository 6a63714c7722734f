# Needs Linux, Python 3.11 or newer, git and make. `make demo` and `make test` set up by themselves, once.
#
#   PYTHON=python3.12           the Python to build on
#   TORCH='torch==2.13.0'       what pip installs first; with no NVIDIA driver fixed versions, with one the
#                               newest torch that ledger/releases.py supports
#   TORCH_ARGS='--index-url …'  extra pip options for that, such as the index of CPU-only builds that pytorch.org names
#   CONSTRAINTS=.ci/constraints.txt   the versions to install (what .ci/run asks for); without it the newest that fit
#   VENV_ARGS=--system-site-packages   let the environment see packages that the machine already has (torch, triton)
#   VENV=none                   build no environment and use $(PYTHON) as it is, on a machine with no network

PYTHON ?= $(firstword $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p; done) python3)
VENV ?= .venv
VENV_ARGS ?=
NVIDIA_DRIVER := $(wildcard /proc/driver/nvidia/version)
TORCH_RANGE := 'torch>=2.10,<2.16'
TORCH ?= $(if $(NVIDIA_DRIVER),$(TORCH_RANGE),torch==2.13.0 triton==3.7.1)
TORCH_ARGS ?=
CONSTRAINTS ?=
PIN := $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))
# A file stays with one worker, which builds what its tests share once.
PYTEST_ARGS ?= -n auto --dist loadfile
TRITON_ARGS ?=
BENCH_ARGS ?= rmsnorm_matmul --dtype fp16 --shape B=8,H=4096,O=4096

export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Tests start Python often: it compiles this repository once, not at each start.
unexport PYTHONDONTWRITEBYTECODE

ifeq ($(VENV),none)
READY :=
RELEASE :=
PY := $(PYTHON)
export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))
else
READY := $(VENV)/.ready
RELEASE := $(VENV)/.release
PY := $(abspath $(VENV))/bin/python
endif

.PHONY: help setup demo test test-exhaustive test-stress test-gpu test-triton bench site lint format dist \
	supply-chain lock clean
help:
	@echo 'make demo      the whole loop on the device that is here: calibrate, predict, seal, measure, report'
	@echo 'make test      all tests that need no GPU        make test-gpu  those that need one'
	@echo 'make test-exhaustive  every combination of shape, dtype and target of which make test runs some; CI runs both'
	@echo 'make bench     one cell of the bench table       make lint      ruff and mypy'
	@echo 'make test-stress  faults at the system calls of a seal (needs strace), 200 cells on a failing fleet (needs ray)'
	@echo 'make test-triton  compile every kernel with each supported Triton for sm_75, sm_80 and sm_90 (TRITON_ARGS)'
	@echo 'make site      every page and plot of this ledger, into site/, which git ignores'
	@echo 'make dist      build and check wheel and sdist   make clean     remove what was built'
	@echo 'make supply-chain  known vulnerabilities and licences of what is installed (asks the network)'
	@echo 'make lock      write the versions that CI installs, .ci/constraints.txt'

setup: $(READY)

# One stamp, so that this runs once; a changed pyproject.toml runs it again.
$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "got Python " + sys.version.split()[0] + "; expected 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV_ARGS) $(VENV)
	$(PY) -m pip install --quiet $(PIN) $(TORCH_ARGS) $(TORCH)
	$(PY) -m pip install --quiet $(PIN) --editable '.[torch,ncu,plot,dev]'
	@touch $@

demo: $(READY)
	@PYTHON='$(PY)' bash examples/demo.sh

test: $(READY)
	$(PY) -m pytest -m 'not gpu and not stress and not exhaustive' -ra $(PYTEST_ARGS)

# What CI runs: also each combination of shape, dtype and target of which `make test` runs some.
test-exhaustive: $(READY)
	$(if $(READY),$(PY) -m pip install --quiet $(PIN) --editable '.[fleet]')
	$(PY) -m pytest -m 'exhaustive and not gpu and not stress' -ra $(PYTEST_ARGS)

test-stress: $(READY)
	$(PY) -m pytest -m stress -ra

test-triton: $(READY)
	$(PY) tests/compile_releases.py $(TRITON_ARGS)

test-gpu: $(READY)
	$(PY) -m pytest -m gpu -ra

bench: $(READY)
	$(PY) -m ledger bench $(BENCH_ARGS)

COMMAND_REFERENCE = from typer.main import get_command; from ledger.cli.app import app; \
	from ledger.render.command_reference import render_markdown; print(render_markdown(get_command(app)), end="")

# The plots, then the pages, which link them, and the command reference: everything with a bench of cuBLAS, an H200 beside a CPU, and some campaigns alone.
site: $(READY)
	$(PY) -m ledger roofline --bench benchmarks/h200-cublas.json -o site/roofline
	$(PY) -m ledger roofline --hw h200 --hw benchmarks/cpu.yaml --kernel decode_attention \
		--bench benchmarks/cpu-decode.json -o site/roofline/overlay
	for name in two_rings changed_over latent handed_on; do \
		$(PY) -m ledger roofline --campaign h200_$$name -o site/roofline/$$name || exit 1; done
	$(PY) -m ledger report --site site
	$(PY) -c '$(COMMAND_REFERENCE)' > site/commands.md

LOCKED = import json; print(*sorted("{name}=={version}".format(**one["metadata"]) for one in \
	json.load(open(".lock.json"))["install"] if one["metadata"]["name"] != "roofline-ledger"), sep="\n")

lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: $(READY)
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

$(VENV)/.release: $(READY)
	$(PY) -m pip install --quiet $(PIN) '.[release]'
	@touch $@

# W002: a wheel holds the licences of an asset twice, beside it and among its metadata.
dist: $(RELEASE)
	rm -rf dist
	$(PY) -m hatchling build -d dist
	$(PY) -m twine check --strict dist/*
	$(PY) -m check_wheel_contents --ignore W002 dist/*.whl
	$(PY) tests/check_dist.py dist

# Known vulnerabilities of what is installed (asks the advisory database of the Python Packaging Authority), and licences.
supply-chain: $(RELEASE)
	$(PY) -m pip_audit --skip-editable
	$(PY) tests/check_licences.py torch ncu plot drill time log

# The newest versions that fit, for CI. torch and triton are pinned above. No hashes: an index may build its own wheels.
lock: $(READY)
	$(PY) -m pip install --dry-run --ignore-installed --quiet --report .lock.json '.[ncu,plot,drill,log,notebook,fleet,dev,release]'
	$(PY) -c '$(LOCKED)' > .ci/constraints.txt
	rm -f .lock.json

clean:
	rm -rf $(if $(filter none,$(VENV)),,$(VENV)) .triton dist build site .pytest_cache .mypy_cache .ruff_cache .hypothesis
