# Everything runs in .venv, which is made from requirements.lock: `make help` says what there is.

PYTHON ?= python3
# Another Ray than the one that the lock pins: `make check RAY=2.53.0`.
RAY ?=
BIN := .venv/bin
READY := .venv/.ready$(RAY:%=-with-ray-%)
# The package as installed, made of links, for tools that don't ask setuptools where `package-dir` puts its folders.
TREE := build/tree
# What the container image of k8s/Dockerfile has: a part of the lock, without what tests and benchmarks need.
IMAGE_EXTRAS := pod native arrow serve tracing
# The versions of Python for which the locks have to have wheels, on Linux with glibc 2.28 or newer.
PYTHONS := 3.10 3.11 3.12 3.13 3.14
PLATFORM := x86_64-manylinux_2_28
# Published without wheels: pyspark is Python and Java alone, and needs no compiler.
SOURCES := pyspark

# Their tables of figures, goals and reasons are written from benchmarks/results.
SHOWING_FIGURES := README.md docs/figures.md

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv check lint types imports tree wheels wheel test test-compiled test-compiled-if-possible soak demo bench bench-compiled figures lock clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

venv: $(READY) ## .venv with everything that the lock pins, and this package in editable mode

$(READY): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(if $(RAY),$(BIN)/python -m pip install --quiet --disable-pip-version-check 'ray[default]==$(RAY)')
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	rm -f .venv/.ready*
	touch $@

check: lint types imports wheels test-compiled-if-possible test ## all that a change has to pass; CI runs this and nothing else

lint: $(READY) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# As for the oldest Python; from 3.12 on as for the one in use, since NumPy's stubs there can't be read as for an older one.
types: $(READY) tree ## mypy, strict
	$(BIN)/mypy $(shell $(BIN)/python -c 'import sys; sys.version_info < (3, 12) or print("--python-version=%d.%d" % sys.version_info[:2])') -p echannel_ray -p tests

imports: $(READY) tree ## who may import whom
	cd $(TREE) && $(CURDIR)/$(BIN)/lint-imports --no-logo --config $(CURDIR)/pyproject.toml --cache-dir ../imports

tree:
	@rm -rf $(TREE) && mkdir -p $(TREE)/echannel_ray
	@ln -s $(CURDIR)/echannel_ray/* $(CURDIR)/modulators $(CURDIR)/integrations $(CURDIR)/benchmarks $(TREE)/echannel_ray

wheels: .venv/.wheels ## what the locks pin is there as wheels for all supported versions of Python; asks the package index

.venv/.wheels: requirements.lock k8s/requirements.lock $(READY)
	@for python in $(PYTHONS); do for lock in requirements.lock k8s/requirements.lock; do \
		echo "Wheels for Python $$python: $$lock"; \
		$(BIN)/uv pip install --quiet --dry-run --no-deps --require-hashes --python-version $$python --python-platform $(PLATFORM) \
			--only-binary :all: $(SOURCES:%=--no-binary %) --target build/wheels --requirement $$lock || exit 1; \
	done; done
	touch $@

test: $(READY) ## the tests, in two processes; ONLY="-k name" runs some of them
	$(BIN)/python -m pytest -n 2 $(ONLY)

# The folders whose tests have compiled classes do the work. Not those of `endpoint`, `producers`, `consumers` and
# `transport`, which put fakes into such classes or look into them; and not those of Spark, the page, pods, sandboxes and
# the command line, which would take as long again and meet compiled classes only as the others do.
COMPILED_TESTS := tests/test_compilation.py $(addprefix tests/,core actors api client derived faults formats gateway logs \
	modulators programs records retained security shared)
COMPILED := build/compiled
# In a folder of its own, and first in all processes: what is imported there is what the wheel has.
IN_COMPILED := cd $(COMPILED) && PYTHONPATH=$(CURDIR)/$(COMPILED) ECHANNEL_COMPILED=1 $(CURDIR)/$(BIN)/python
BESIDE_TESTS := examples docs README.md CONTRIBUTING.md Makefile pyproject.toml setup.py
CAN_COMPILE := import os, shutil, sysconfig as s; \
	has_headers = os.path.exists(os.path.join(s.get_paths()["include"], "Python.h")); \
	raise SystemExit(not (has_headers and shutil.which((s.get_config_var("CC") or "cc").split()[0])))

test-compiled: $(COMPILED)/.ready ## those tests that can be, with the compiled wheel; ONLY="-k name" runs some of them
	cd $(COMPILED) && rm -rf tests $(BESIDE_TESTS)
	cp -r tests $(BESIDE_TESTS) $(COMPILED)
	$(IN_COMPILED) -m pytest -n 2 $(or $(ONLY),$(COMPILED_TESTS))

test-compiled-if-possible: $(READY)
	@if $(BIN)/python -c '$(CAN_COMPILE)'; then $(MAKE) test-compiled; \
	else echo "no C compiler, or no headers of Python: the tests with a compiled wheel are left out"; fi

$(COMPILED)/.ready: build/wheel/.ready
	rm -rf $(COMPILED) && mkdir -p $(COMPILED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(COMPILED) build/wheel/*.whl
	touch $@

wheel: build/wheel/.ready ## dist/ gets a wheel whose hot modules are compiled; takes minutes, and a C compiler
	mkdir -p dist && cp build/wheel/*.whl dist

PACKAGED := $(shell find echannel_ray modulators integrations benchmarks -name __pycache__ -prune -o \
	-path benchmarks/results -prune -o -type f ! -name RESULTS.md -print)
build/wheel/.ready: $(READY) setup.py pyproject.toml README.md $(PACKAGED) | tree
	rm -rf build/wheel build/lib* build/temp* build/bdist*
	ECHANNEL_COMPILE=1 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir $(@D) .
	touch $@

soak: $(READY) ## the tests that run for minutes
	$(BIN)/python -m pytest -m soak --timeout 7200 $(ONLY)

demo: $(READY) ## a short tour
	$(BIN)/python -m echannel_ray.demo
	$(BIN)/python examples/spark_training.py --rows 300000 --if-possible

bench: $(READY) ## the benchmarks, hours; ONLY="name name" runs some of them
	$(BIN)/python -m echannel_ray.benchmarks $(ONLY) --out benchmarks --documents $(SHOWING_FIGURES)

bench-compiled: $(COMPILED)/.ready ## the same with the compiled wheel
	$(IN_COMPILED) -m echannel_ray.benchmarks $(ONLY) --sources $(CURDIR) --out $(CURDIR)/benchmarks \
		--documents $(SHOWING_FIGURES:%=$(CURDIR)/%)

figures: $(READY) ## the pages and tables of what the benchmarks have measured, without measuring
	$(BIN)/python -m echannel_ray.benchmarks --render --out benchmarks --documents $(SHOWING_FIGURES)

lock: $(READY) ## pin again what pyproject.toml asks for, for all supported versions of Python; UPGRADE=1 takes newer ones
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --all-extras --generate-hashes \
		--custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) --output-file requirements.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 $(IMAGE_EXTRAS:%=--extra %) --generate-hashes \
		--custom-compile-command "make lock" --constraint requirements.lock \
		--output-file k8s/requirements.lock pyproject.toml

clean: ## remove what these targets have made
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
