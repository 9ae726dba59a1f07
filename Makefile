# `make` alone lists the targets. On a new machine `make run` is all there is to do.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
CONTRACT ?= contracts/examples/this-host.yaml

.PHONY: help dev run demo fmt lint types test perf i18n gpu-check dist

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

$(BIN)/python:
	@sh packaging/setup.sh venv $(VENV)

# The package alone, as a renter needs it.
$(VENV)/installed: $(BIN)/python pyproject.toml
	@$(PIP) install --editable .
	@touch $@

# With everything that formatting, checking, testing and building needs.
$(VENV)/developed: $(BIN)/python pyproject.toml constraints-dev.txt
	@$(PIP) install --constraint constraints-dev.txt --editable '.[dev,seal]'
	@touch $@ $(VENV)/installed

dev: $(VENV)/developed ## make .venv with all development tools

run: $(VENV)/installed ## judge this machine (CONTRACT=… for a contract of your own)
	@sh packaging/setup.sh tools
	@sh packaging/run.sh $(BIN)/accept $(CONTRACT)

demo: $(VENV)/developed ## judge several servers that are not there, healthy and broken, and say where the reports are
	@$(BIN)/python -m tests.fakenode.demo demo

fmt: $(VENV)/developed ## format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix --quiet .

lint: $(VENV)/developed ## check format and style
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check .

types: $(VENV)/developed ## mypy --strict, for Python 3.9
	@$(BIN)/mypy

test: $(VENV)/developed ## run the tests; what is skipped is counted with its reason
	@$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

perf: $(VENV)/developed ## print the figures of the statistics and of the tools' overhead
	@for what in simulate_stats simulate_nodes simulate_trial gemm_ratio allreduce_ratio telemetry_rate watch_cost facts_overhead fio_ratio \
	    iperf3_ratio dd_ratio ping_ratio download_ratio; do \
	  echo "== $$what"; $(BIN)/python -m tests.perf.$$what || exit; done

i18n: $(VENV)/developed ## collect the texts and compile the translations
	@$(BIN)/python -m tests.tools_i18n

gpu-check: $(VENV)/developed ## the checks that need an NVIDIA GPU; exit 3 where there is none
	@sh packaging/gpu_check.sh $(BIN)/accept

dist: $(VENV)/developed ## build the wheel, the source archive and accept.pyz
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist . >/dev/null
	@$(BIN)/python packaging/pyz.py dist/*.whl
	@ls -l dist
