# Everything runs in .venv, which is made from requirements.lock: `make help` says what there is.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# The package as installed, made of links, for tools that don't ask setuptools where `package-dir` puts its folders.
TREE := build/tree
# What the container image of k8s/Dockerfile has: a part of the lock, without what tests and benchmarks need.
IMAGE_EXTRAS := pod native arrow serve tracing

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv check lint types imports tree test soak demo bench lock clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

venv: $(READY) ## .venv with everything that the lock pins, and this package in editable mode

$(READY): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

check: lint types imports test ## all that a change has to pass; CI runs this and nothing else

lint: $(READY) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) tree ## mypy, strict
	$(BIN)/mypy -p echannel_ray -p tests

imports: $(READY) tree ## who may import whom
	cd $(TREE) && $(CURDIR)/$(BIN)/lint-imports --no-logo --config $(CURDIR)/pyproject.toml --cache-dir ../imports

tree:
	@rm -rf $(TREE) && mkdir -p $(TREE)/echannel_ray
	@ln -s $(CURDIR)/echannel_ray/* $(CURDIR)/modulators $(CURDIR)/integrations $(CURDIR)/benchmarks $(TREE)/echannel_ray

test: $(READY) ## the tests; ONLY="-k name" runs some of them
	$(BIN)/python -m pytest $(ONLY)

soak: $(READY) ## the tests that run for minutes
	$(BIN)/python -m pytest -m soak --timeout 7200 $(ONLY)

demo: $(READY) ## a short tour
	$(BIN)/python -m echannel_ray.demo
	$(BIN)/python examples/spark_training.py --rows 300000 --if-possible

bench: $(READY) ## the benchmarks, half an hour; ONLY="name name" runs some of them
	$(BIN)/python -m echannel_ray.benchmarks --out benchmarks $(ONLY)

lock: $(READY) ## pin again what pyproject.toml asks for, for all supported versions of Python; UPGRADE=1 takes newer ones
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --all-extras --generate-hashes \
		--custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) --output-file requirements.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 $(IMAGE_EXTRAS:%=--extra %) --generate-hashes \
		--custom-compile-command "make lock" --constraint requirements.lock \
		--output-file k8s/requirements.lock pyproject.toml

clean: ## remove what these targets have made
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
