# torch_mojo_backend. `make help` lists the targets.

VENV ?= .venv
PYTHON ?= python3
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
PIP_ARGS ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PYTEST_ARGS ?=
# Without a wish of the user's, any torch that will do is left as it is.
TORCH_ASKED := $(if $(filter file,$(origin TORCH)),,yes)
export VENV PYTHON TORCH TORCH_ASKED TORCH_INDEX PIP_ARGS
# Clones in other folders and other builds of the same options share what ccache keeps.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
PY := $(VENV)/bin/python
# The virtual environment's Python by an absolute path, whatever VENV is relative to.
PY_ABSOLUTE = $(abspath $(VENV))/bin/python
RESULTS := build/results

.PHONY: help
help: ## this list
	@echo "make TARGET [VARIABLE=value ...]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "variables"
	@echo "  VENV=$(VENV)            the virtual environment: made where it is missing"
	@echo "  PYTHON=$(PYTHON)        what makes it"
	@echo "  TORCH=$(TORCH)   what is installed as torch, where it is not there already"
	@echo "  TORCH_INDEX=URL       the package index to take torch from (for a CPU build: the one its install page names)"
	@echo "  PIP_ARGS=             more arguments for pip"
	@echo "  JOBS=$(JOBS)                how many compilations at a time"

.PHONY: setup-build setup-test setup-check setup-bench
setup-build:
	@tools/setup.sh system build && tools/setup.sh python build
setup-test:
	@tools/setup.sh system build test && tools/setup.sh python build test examples
setup-check:
	@tools/setup.sh system build test check && tools/setup.sh python build test examples check
setup-bench:
	@tools/setup.sh system build bench && tools/setup.sh python build test

.PHONY: demo
demo: install ## install everything that is missing, build, install, and show the main job
	@cd examples && $(PY_ABSOLUTE) demo.py

.PHONY: install
install: setup-build ## build the package and install it into VENV
	@$(PY) -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps --no-index \
	  --config-settings=build.tool-args=-j$(JOBS) .

# Configures a preset where it was not yet, or was for another Python, and builds it.
define build_preset
	@tools/build.sh $(1) $(PY_ABSOLUTE) $(JOBS)
endef

.PHONY: build
build: setup-test ## the checked development build, used in place: PYTHONPATH=python
	$(call build_preset,dev)

.PHONY: test
test: build ## all C++ and Python tests
	@mkdir -p $(RESULTS)
	@ctest --preset dev -j $(JOBS) --output-junit $(abspath $(RESULTS))/ctest-dev.xml
	@PYTHONPATH=$(abspath python) $(PY) -m pytest -m "not slow" --junitxml=$(RESULTS)/pytest.xml $(PYTEST_ARGS)

.PHONY: test-all
test-all: build ## the same and the slow ones
	@mkdir -p $(RESULTS)
	@ctest --preset dev -j $(JOBS) --output-junit $(abspath $(RESULTS))/ctest-dev.xml
	@PYTHONPATH=$(abspath python) $(PY) -m pytest --junitxml=$(RESULTS)/pytest.xml $(PYTEST_ARGS)

.PHONY: asan tsan
asan: setup-test ## the C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(call build_preset,asan)
	@mkdir -p $(RESULTS)
	@ctest --preset asan -j $(JOBS) --output-junit $(abspath $(RESULTS))/ctest-asan.xml
tsan: setup-test ## the C++ tests under ThreadSanitizer
	$(call build_preset,tsan)
	@mkdir -p $(RESULTS)
	@ctest --preset tsan -j $(JOBS) --output-junit $(abspath $(RESULTS))/ctest-tsan.xml

.PHONY: check
check: setup-check ## formatting, lints, types, the layers, the contract's rows
	@PATH="$(abspath $(VENV))/bin:$$PATH" tools/check.sh $(JOBS)

.PHONY: format
format: setup-check ## reformat all C++ and Python files
	@git ls-files -co --exclude-standard '*.h' '*.cpp' | xargs -r clang-format -i
	@$(PY) -m ruff format -q .
	@$(PY) -m ruff check -q --fix .

.PHONY: bench
bench: install setup-bench ## the benchmarks; results in build/bench
	@mkdir -p build/bench
	@cd benchmarks && for file in *.py; do \
	  case $$file in _*) continue;; esac; \
	  echo "== $$file"; $(PY_ABSOLUTE) $$file --json $(abspath build/bench)/$${file%.py}.json; done

.PHONY: bench-cpp
bench-cpp: setup-bench ## the C++ benchmarks, with their limits; no torch
	@cmake --preset release -B build/bench-cpp -DMOJO_BUILD_TORCH=OFF -DMOJO_BUILD_BENCHMARKS=ON > /dev/null
	@cmake --build build/bench-cpp -j $(JOBS) --target bench_queue bench_vector_add
	@status=0; for program in queue vector_add; do \
	  echo "== bench_$$program"; build/bench-cpp/benchmarks/cpp/bench_$$program 2> /dev/null || status=1; done; exit $$status

.PHONY: docs
docs: build ## regenerate the generated pages of docs/
	@PYTHONPATH=$(abspath python) $(PY) -m torch_mojo_backend docs-settings > build/environment.md
	@mv build/environment.md docs/environment.md
	@PYTHONPATH=$(abspath python) $(PY) -m torch_mojo_backend docs-ops > build/ops.md
	@mv build/ops.md docs/ops.md

.PHONY: clean
clean: ## remove what was built (not VENV)
	@rm -rf build python/torch_mojo_backend/lib python/torch_mojo_backend/*.so python/torch_mojo_backend/_build_info.py \
	  compile_commands.json
