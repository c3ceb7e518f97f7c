# What people do with this repository. Each target does its own set-up, says what it installs and
# why, and can be run again at once. testbed/setup/ has the scripts.
#
#   SITE=real|embedded   demo: which site (default: real where this machine allows it)
#                        test: embedded leaves out what needs root and distribution packages
#   ARGS='...'           more options for pytest or the benchmarks
#   HEADGATE_PYTHON      another interpreter for .venv than /usr/bin/python3

export SITE HEADGATE_PYTHON UPGRADE UV
ARGS ?=
setup := testbed/setup

.PHONY: help demo test test-long test-extras lint bench constraints clean
.NOTPARALLEL:

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/make \1\t\2/p' Makefile | expand -t 20

demo: ## the suite's story on a whole HPC site, on this machine
	@$(setup)/demo.sh

test: ## every test but the long campaigns
	@$(setup)/test.sh $(ARGS)

test-long: test-extras ## every test, the long campaigns included
	@$(setup)/test.sh --long $(ARGS)

test-extras: ## each extra, installed alone, imports its service
	@$(setup)/extras.sh

lint: ## style, types, boundaries between packages, shell scripts
	@$(setup)/lint.sh

bench: ## the benchmarks with their floors, as a table
	@$(setup)/bench.sh $(ARGS)

constraints: ## pin the dependencies again (UPGRADE=1: the newest)
	@$(setup)/constraints.sh

clean: ## remove .venv and caches; distribution packages stay
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
