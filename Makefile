# Needs Python 3.11 or newer and make. The real-Kafka tests also need JDK 17+ and Maven; the alert tests need
# promtool, which make fetches on Debian.

NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	$$python $(NEW_ENOUGH) 2>/dev/null && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
PYTEST_FLAGS ?=
PROMTOOL := $(or $(shell command -v promtool),.cache/bin/promtool)

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help run install test lint types unit coverage chart golden simulate shrink clocks kafka field soak fuzz format hooks lock \
	bench latency memory scale recovery peers clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

run: $(BIN)/acceptance-consumer  ## run the demo (DURATION=15), or the service on your KAFKA_BOOTSTRAP_SERVERS
ifeq ($(strip $(KAFKA_BOOTSTRAP_SERVERS)$(ACCEPTANCE_BOOTSTRAP_SERVERS)),)
	@$(BIN)/acceptance-consumer demo $(if $(DURATION),--duration $(DURATION))
else
	@$(BIN)/acceptance-consumer run
endif

install: $(BIN)/acceptance-consumer  ## install the command at .venv/bin/acceptance-consumer

test: lint types unit chart simulate kafka  ## install what the tests need, and run all checks and tests

lint: $(VENV)/.dev  ## check style, spelling, words, imports and generated documents
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/codespell
	@$(BIN)/python -m tests.documents.plain_english
	@$(BIN)/python -m tests.documents.generate --check

types: $(VENV)/.dev  ## check types
	@$(BIN)/mypy

unit: $(VENV)/.dev  ## run the tests that need no Kafka
	@$(BIN)/pytest -n 2 -m "not kafka and not chart and not field" $(PYTEST_FLAGS)

coverage: $(VENV)/.dev  ## print the branch coverage of the unit tests
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -n 2 -m "not kafka and not chart and not field" $(PYTEST_FLAGS) tests/unit
	@$(BIN)/coverage combine --quiet && $(BIN)/coverage report

chart: $(VENV)/.dev $(PROMTOOL)  ## test the Helm chart, the alerts and the build steps of the image
	@$(BIN)/python -m tests.chart.binaries
	@$(BIN)/pytest -n 2 -m chart $(PYTEST_FLAGS)

golden: $(VENV)/.dev  ## rewrite the expected renderings of the chart; review the difference
	@$(BIN)/python -m tests.chart.golden

simulate: $(VENV)/.dev  ## inject failures on an in-memory broker, for SEEDS=10000 seeds from FIRST=0
	@$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),10000) --first $(or $(FIRST),0)

shrink: $(VENV)/.dev  ## make the simulation's world of a broken SEED small, and print its story
	@$(BIN)/python -m tests.simulation.shrink $(SEED)

clocks: $(VENV)/.dev  ## hold the rule of stream time beside others, in logs with wrong clocks
	@$(BIN)/python -m tests.simulation.clocks

kafka: $(VENV)/.dev  ## run the tests on a real Kafka; skipped with a warning without Java and Maven
	@$(BIN)/pytest -n 2 -m kafka $(PYTEST_FLAGS)

field: $(VENV)/.dev  ## let other software write to a real Kafka, and read it (ONLY="rsyslog ...")
	@$(BIN)/python -m tests.field.programs $(ONLY)
	@$(BIN)/pytest -m field $(PYTEST_FLAGS) tests/field

soak: $(VENV)/.dev  ## inject failures on a real Kafka of three brokers, for MINUTES=10 with SEED=1
	@$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1)

fuzz: $(VENV)/.fuzz  ## look for values that break the opening of messages, for MINUTES=2
	@$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),2) $(if $(ONLY),--only $(ONLY))

bench: $(VENV)/.dev  ## compare the service with a bare consumer on a real Kafka
	@$(BIN)/python -m tests.bench

latency: $(VENV)/.dev  ## measure the time from an event to its readable record
	@$(BIN)/python -m tests.bench.latency

memory: $(VENV)/.dev  ## measure the memory of a million open requests, and of a long run
	@$(BIN)/python -m tests.bench.memory

scale: $(VENV)/.dev  ## measure cost by instances, open requests, stream length and partitions
	@$(BIN)/python -m tests.bench.scale

recovery: $(VENV)/.dev  ## measure checkpoints, and how much a restart re-reads
	@$(BIN)/python -m tests.bench.recovery

peers: $(VENV)/.dev  ## compare the service with the same job in other frameworks
	@$(BIN)/python -m tests.bench.peers

format: $(VENV)/.dev  ## format the code and write the generated documents
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .
	@$(BIN)/python -m tests.documents.generate

hooks: $(VENV)/.dev  ## install the pre-commit hooks into this clone
	@$(BIN)/pre-commit install

lock: $(VENV)/.dev  ## resolve the locked dependencies again
	@$(BIN)/pip install --quiet pip-tools
	@$(BIN)/pip-compile --quiet --strip-extras --no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --output-file requirements.lock pyproject.toml
	@$(BIN)/pip-compile --quiet --strip-extras --no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --extra dev --constraint requirements.lock --output-file requirements-dev.lock pyproject.toml

clean:  ## remove everything that make created
	@rm -rf $(VENV) .cache .coverage* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist

$(VENV)/.made:
	@test -n "$(PYTHON)" && $(PYTHON) $(NEW_ENOUGH) || { echo "Python 3.11 or newer is needed; name one with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(BIN)/acceptance-consumer: $(VENV)/.made requirements.lock pyproject.toml
	@echo "installing into $(VENV) ..." >&2
	@$(BIN)/pip install --quiet --requirement requirements.lock
	@$(BIN)/pip install --quiet --no-deps --editable .
	@touch $@

$(VENV)/.dev: $(BIN)/acceptance-consumer requirements-dev.lock
	@$(BIN)/pip install --quiet --requirement requirements-dev.lock
	@touch $@

# Not a locked dependency: no other target needs it, and it has wheels for Linux on x86-64 only.
$(VENV)/.fuzz: $(VENV)/.dev
	@$(BIN)/pip install --quiet 'atheris>=3,<4'
	@touch $@

.cache/bin/promtool:
	@mkdir -p .cache/bin .cache/prometheus
	@cd .cache/prometheus && { apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }; } 2>/dev/null \
		&& dpkg -x prometheus_*.deb . && mv usr/bin/promtool ../bin/ && rm -r ../prometheus \
		|| echo "promtool is not available: install Prometheus, or the alert tests are skipped" >&2
