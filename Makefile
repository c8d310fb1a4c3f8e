# Every command sets up what it needs: a virtual environment in .venv, filled from requirements.lock.
# All that has to be there is Python 3.11 or newer, make, and (for Spark) a Java 17 or newer.
SHELL := /bin/bash
PYTHON ?= python3
UV_VERSION := 0.13.9
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-embedded test-docker prove torture lint format bench lock java clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1|/' | column -t -s '|'

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11")'
	@echo "setting up $(VENV) from requirements.lock (once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip --quiet --disable-pip-version-check install uv==$(UV_VERSION)
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --require-hashes -r requirements.lock
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

java:
	@docker/install-java.sh

demo: $(READY) java ## Run the tour on a real Kafka: declare, produce, board, browse, consume, Spark
	@$(BIN)/python -m lvq_kafka.demo

test: lint test-fast test-embedded test-docker ## Run everything; Docker tests when an engine can be reached

test-fast: $(READY) ## Run what needs no broker (under a minute)
	@$(BIN)/pytest tests/unit tests/property tests/scenarios tests/simulator -q -n 4

test-embedded: $(READY) java ## Run the integration and Spark tests on the embedded broker
	@LVQ_TEST_BROKER=embedded $(BIN)/pytest tests/integration tests/spark -q -n 2 --dist loadgroup

test-docker: $(READY) java ## Run the integration tests on Kafka in Docker
	@docker/run-tests.sh $(BIN)/pytest

prove: $(READY) ## Let the simulator try to break the consume protocol, some minutes long
	@$(BIN)/python -m tests.simulator

torture: $(READY) java ## Kill consumers and broker for SECONDS=300 and judge what came of it; SEED=n deals the same cards
	@$(BIN)/python -m tests.torture --seconds $(or $(SECONDS),300) $(if $(SEED),--seed $(SEED))

lint: $(READY) ## Check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY) ## Format the code and fix what can be fixed by itself
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

bench: $(READY) java ## Compare with a bare client loop and with ktables on one broker
	@$(BIN)/python -m tests.benchmarks

lock: $(READY) ## Resolve the newest allowed versions into requirements.lock
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --all-extras --group dev \
	    --no-annotate --no-header pyproject.toml -o requirements.lock

clean: ## Remove the environment and what tools left behind
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
