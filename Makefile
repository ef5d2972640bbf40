# The two commands that most people need: `make tour` and `make test`. `make help` lists the rest.
.DEFAULT_GOAL := help
SETUP := cmake/setup.sh
PYTHON_ENV := .venv/bin/python
# Compiler-cache hits do not depend on where the repository lies.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

.PHONY: help setup build tour test lint format bench bench-peers asan tsan nightly wheel docs clean

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

setup:  ## install system packages and .venv, build, and install the package into .venv
	@$(SETUP) all

build:  ## the same without installing the package
	@$(SETUP) system python build

tour: setup  ## the main job on real input; the result is tour/report.html
	@$(SETUP) peers
	@$(PYTHON_ENV) examples/tour/tour.py --output tour

test: setup  ## every fast test, C++ and Python
	@tests/run.sh

lint:  ## layering, file sizes, formatting and the like, without a build
	@$(SETUP) system python
	@$(PYTHON_ENV) -m pytest tests/lint -q -m "not needs_build"

format:  ## format all sources by clang-format and ruff
	@$(SETUP) system python
	@find quincunx tests benchmarks examples \( -name '*.h' -o -name '*.cpp' \) -print0 | xargs -0 clang-format-22 -i
	@$(PYTHON_ENV) -m ruff check --quiet --fix . ; $(PYTHON_ENV) -m ruff format --quiet .

bench: setup bench-peers  ## measure every capability against its peers; writes benchmarks/RESULTS.md
	@.venv/bin/qx bench all --results benchmarks/RESULTS.md

bench-peers:  ## install the peers of the benchmarks into .venv-peers
	@$(SETUP) system peers

asan:  ## the C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@tests/nightly.sh asan

tsan:  ## the C++ tests under ThreadSanitizer
	@tests/nightly.sh tsan

nightly:  ## all the slow checks, or one: PART=g++|asan|tsan|tidy|fuzz|coverage|train|aarch64|vector_math|faults
	@tests/nightly.sh $(PART)

wheel:  ## a wheel that carries its own libraries, in dist/
	@$(SETUP) system python build wheel

docs: setup  ## run the examples of the documentation and render it to build/docs
	@$(SETUP) docs
	@$(PYTHON_ENV) -m pytest tests/lint/test_snippets.py -q
	@$(PYTHON_ENV) -m mkdocs build --strict --site-dir build/docs

clean:  ## remove everything that the other commands made
	rm -rf build dist tour .venv .venv-peers
