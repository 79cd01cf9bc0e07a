# `make` alone lists what there is. Everything runs in a virtual environment of its own, $(VENV).

PYTHON ?= python3
VENV = .venv
BACKEND =
WORKERS = 2
PYTEST_ARGS =

PY = $(VENV)/bin/python
PIP = $(PY) -m pip --disable-pip-version-check
BIN = $(VENV)/bin

# Some robotics distributions export PYTHONPATH for every shell; their packages must not mix with the environment's.
unexport PYTHONPATH PYTHONHOME

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check-format format lint types imports cuda-compile cuda-table pytest oclgrind gpu-test \
    gpu-sanitize soak fixtures dist clean

help:  ## List the targets and variables
	@echo 'Targets:'
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
	    while IFS='|' read -r name text; do printf '  make %-13s %s\n' "$$name" "$$text"; done
	@echo 'Variables (make NAME=VALUE ...):'
	@echo '  PYTHON=python3     interpreter that makes the virtual environment, 3.10 or newer'
	@echo '  VENV=.venv         where the virtual environment is'
	@echo '  BACKEND=           demo: numpy, opencl, opencl:cpu, cuda ... (empty: opencl)'
	@echo '  WORKERS=2          test, pytest: how many tests run at once'
	@echo '  PYTEST_ARGS=       test, pytest: more arguments, as PYTEST_ARGS="-k bundle -x"'
	@echo '  CHECK= MANIFEST=   gpu-test: a script and its list of models to run as well, on each device'

demo: $(VENV)/.installed-demo$(if $(filter cuda%,$(BACKEND)),-cuda)  ## Convert the vehicle model, classify its photos, print the kernels' times
	@$(PY) examples/vehicle/demo.py $(if $(BACKEND),--backend $(BACKEND))

test: check-format lint types imports cuda-compile pytest  ## Formatting, lint, types, import rules and all tests

check-format: $(VENV)/.installed-dev  ## Complain about files that are not formatted
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-dev  ## Format all files and sort imports
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

lint: $(VENV)/.installed-dev  ## Lint
	$(BIN)/ruff check .

types: $(VENV)/.installed-dev  ## Check types
	$(BIN)/mypy

imports: $(VENV)/.installed-dev  ## Check who may import whom
	$(BIN)/lint-imports

# bnnrt writes the sources, and an environment of its own for each CUDA version compiles them.
CUDA_SOURCES = build/cuda
COMPILE_CUDA = tests/checkers/compile_cuda.py $(CUDA_SOURCES) --table tests/golden/cuda_resources.json

NVRTC = $(VENV)-nvrtc12/.installed $(VENV)-nvrtc13/.installed

cuda-compile: $(VENV)/.installed-dev $(NVRTC)  ## Compile every CUDA source, without a GPU; compare what kernels take
	@$(PY) tests/checkers/cuda_sources.py $(CUDA_SOURCES)
	@$(VENV)-nvrtc12/bin/python $(COMPILE_CUDA) $(UPDATE)
	@$(VENV)-nvrtc13/bin/python $(COMPILE_CUDA) $(UPDATE)

cuda-table:  ## Write tests/golden/cuda_resources.json anew, after a change to kernels
	@$(MAKE) --no-print-directory cuda-compile UPDATE=--update

# worksteal: the tests of a file stay on one worker as far as possible, and share their fixtures.
pytest: $(VENV)/.installed-dev  ## Run the tests only
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

# -DRESTRICT= and no optimization: Oclgrind does not know what LLVM makes of either.
oclgrind: $(VENV)/.installed-dev  ## Check every OpenCL kernel for races and bad memory accesses (Debian: oclgrind)
	@rm -f oclgrind.log
	BNNRT_CACHE_DIR= oclgrind --build-options "-DRESTRICT= -cl-opt-disable" --data-races --uninitialized \
	    --max-errors 1000 --log oclgrind.log $(PY) tests/checkers/every_kernel.py --backend opencl --kind cpu
	@if [ -s oclgrind.log ]; then head -50 oclgrind.log; exit 1; fi
	@echo 'no race, no uninitialized and no out-of-bounds access'

gpu-test: $(VENV)/.installed-gpu  ## Run the backend tests on every device of a machine with a GPU, and keep the result
	$(PY) tests/checkers/gpu_test.py $(if $(MANIFEST),--check $(CHECK) --manifest $(MANIFEST))

gpu-sanitize: $(VENV)/.installed-gpu  ## Run every CUDA kernel under compute-sanitizer, and keep the result
	$(PY) tests/checkers/sanitize.py

soak: $(VENV)/.installed-dev  ## Classify 200,000 images, one in fifty broken, then open 10,000 sessions (10 minutes)
	$(PY) benchmarks/soak.py --output benchmarks/results/pocl/soak.json
	$(PY) benchmarks/session_cycles.py --output benchmarks/results/pocl/session_cycles.json

fixtures: $(VENV)/.installed-train  ## Rebuild the exported models that the tests read (installs PyTorch)
	$(PY) tests/fixtures/build.py
	$(PY) tests/fixtures/build_residual.py

dist: $(VENV)/.installed-dev  ## Build the sdist, and the wheel from it, into dist/
	rm -rf build dist *.egg-info
	$(PY) -m build

clean:  ## Remove the virtual environment, caches and build results
	rm -rf .venv .venv-nvrtc12 .venv-nvrtc13 build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
	rm -rf .import_linter_cache .hypothesis .coverage
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

# One stamp for each set of extras: a later run installs again only if pyproject.toml or the interpreter is newer.
$(VENV)/.installed-demo: EXTRAS = opencl,convert
$(VENV)/.installed-demo-cuda: EXTRAS = opencl,convert,cuda
$(VENV)/.installed-dev: EXTRAS = opencl,convert,dev
$(VENV)/.installed-gpu: EXTRAS = opencl,convert,dev,cuda
$(VENV)/.installed-train: EXTRAS = opencl,convert,dev,train

# The warning that is silenced says, in ten lines, what an editable installation is.
define install
@echo 'Installing bnnrt[$(EXTRAS)] into $(VENV) ...'
@$(PIP) install --quiet --upgrade pip
@PYTHONWARNINGS='ignore:Editable installation' $(PIP) install --quiet --editable '.[$(EXTRAS)]'
@touch $@
endef

$(VENV)/.installed-demo: pyproject.toml $(PY)
	$(install)

$(VENV)/.installed-demo-cuda: pyproject.toml $(PY)
	$(install)
	@touch $(VENV)/.installed-demo

$(VENV)/.installed-dev: pyproject.toml $(PY)
	$(install)
	@touch $(VENV)/.installed-demo

$(VENV)/.installed-gpu: pyproject.toml $(PY)
	$(install)
	@touch $(VENV)/.installed-demo $(VENV)/.installed-dev

$(VENV)/.installed-train: pyproject.toml $(PY)
	$(install)
	@touch $(VENV)/.installed-demo $(VENV)/.installed-dev

# Needs $(PY) only for its check of $(PYTHON).
$(VENV)-nvrtc%/.installed: tests/checkers/nvrtc%.txt | $(PY)
	@echo 'Installing NVRTC $* into $(VENV)-nvrtc$* ...'
	@$(PYTHON) -m venv --clear $(VENV)-nvrtc$*
	@$(VENV)-nvrtc$*/bin/python -m pip --disable-pip-version-check install --quiet --requirement $<
	@touch $@

# Empty if $(PYTHON) can make the environment, else one line that says why not. Must run on any Python, 2.7 too.
python-problem = $(shell $(PYTHON) -c 'import sys; \
    found = __import__("importlib.util").util.find_spec if sys.version_info >= (3, 10) else None; \
    print("is Python %d.%d, and bnnrt needs 3.10 or newer" % sys.version_info[:2] if found is None else \
          "" if found("venv") and found("ensurepip") else "has no venv module (Debian: apt install python3-venv)")' \
    2>/dev/null || echo "cannot be run")

$(PY):
	$(if $(python-problem),$(error $(PYTHON) $(python-problem): make PYTHON=/path/to/python3))
	$(PYTHON) -m venv $(VENV)
