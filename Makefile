# Every command sets up what it needs: a virtual environment in .venv, filled from requirements.lock.
# It needs only Python 3.11 or newer, make, and (for Spark) Java 17 or newer.
SHELL := /bin/bash
PYTHON ?= python3
UV_VERSION := 0.13.9
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CLASSES := $(VENV)/spark-classes.jsa
REWRITTEN := $(VENV)/.rewritten
# Debian's python3 lacks what `-m venv` needs, and leaves half an environment behind.
HAS_PIP := $(BIN)/python -m pip --version >/dev/null
NO_VENV := install python3-venv (apt-get install python3-venv), or set PYTHON to another Python.

.DEFAULT_GOAL := help
.PHONY: help demo sizes test test-fast test-protocol test-embedded test-docker docs prove prove-kafka prove-lakehouse torture lint format bench bench-spark compare lock java jdk clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1|/' | column -t -s '|'

# The lock is complete; asked for what PySpark needs, uv would fetch and unpack its half gigabyte a second time.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11")'
	@echo "setting up $(VENV) from requirements.lock (once)"
	@$(HAS_PIP) 2>/dev/null || { rm -rf $(VENV) && $(PYTHON) -m venv $(VENV) >/dev/null && $(HAS_PIP); } || \
	    { rm -rf $(VENV); echo "$(PYTHON) cannot make an environment with pip: $(NO_VENV)" >&2; exit 1; }
	@$(BIN)/python -m pip --quiet --disable-pip-version-check install uv==$(UV_VERSION)
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --require-hashes -r requirements.lock
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

java:
	@docker/install-java.sh

jdk:
	@docker/install-java.sh jdk

# Spark's tests start forty JVMs. With its classes in an archive each computes half as much until it is ready.
$(CLASSES): $(READY) | java
	@echo "archiving Spark's classes in $@ (once)"
	@$(BIN)/python -m tests.spark.starting 2>$(VENV)/spark-classes.log || { cat $(VENV)/spark-classes.log >&2; exit 1; }

demo: $(READY) java ## Run the tour on a real Kafka: declare, produce, board, browse, consume, Spark
	@$(BIN)/python -m lvq_kafka.demo

# The tests start a hundred Pythons. Where bytecode is not kept by default, each would compile everything again.
test-%: export PYTHONDONTWRITEBYTECODE =
test-%: export PYTHONPYCACHEPREFIX = $(CURDIR)/$(VENV)/pycache

# pytest rewrites every assertion when it first imports a test. Each of its workers would do that for all of them.
$(REWRITTEN): $(READY) $(shell find tests -name '*.py')
	@$(BIN)/pytest tests/unit --collect-only -q >/dev/null & pid=$$!; \
	    $(BIN)/pytest tests --ignore tests/unit --collect-only -q >/dev/null; wait $$pid; touch $@

test: lint sizes docs test-fast test-protocol test-embedded test-docker ## Run everything; the Docker tests if an engine can be reached

# More workers than processors: most of these tests wait for each other's threads, and hardly compute.
test-fast: $(REWRITTEN) ## Run what needs no broker
	@$(BIN)/pytest tests/unit tests/property tests/fuzz tests/scenarios -m "not protocol" -q -n 6 --max-worker-restart 0 --dist worksteal

test-protocol: $(REWRITTEN) ## Run the simulator and the tests on the client's mock cluster, which prove the consume protocol
	@$(BIN)/pytest tests/simulator tests/property tests/unit/kafka -m protocol -q -n 4 --max-worker-restart 0

# Spark gives a Python worker that is no child of its daemon 10 s to start, whatever the load (a number in its code).
test-embedded: $(REWRITTEN) jdk $(CLASSES) ## Run the integration and Spark tests on the embedded broker
	@LVQ_TEST_BROKER=embedded $(BIN)/pytest tests/spark tests/integration -q -n 6 --max-worker-restart 0 --dist loadgroup \
	    --reruns 3 --only-rerun "failed to connect back"

test-docker: $(REWRITTEN) jdk ## Run the integration tests on Kafka in Docker
	@docker/run-tests.sh $(BIN)/pytest

prove: $(READY) ## Try to break the consume protocol, every property, stores and readers of hostile input; takes an hour
	@$(BIN)/python -m tests.simulator
	@LVQ_EFFORT=10 $(BIN)/pytest tests/property tests/simulator -q -n 2 --max-worker-restart 0 --timeout 0
	@$(BIN)/python -m tests.killed_stores
	@$(BIN)/python -m tests.soaked_stores --days 365
	@LVQ_EFFORT=40 $(BIN)/pytest tests/fuzz -q -n 2 --max-worker-restart 0 --timeout 0

prove-kafka: $(READY) java $(CLASSES) ## Run the long forms of tests on Kafka and Spark, which `make test` leaves out, and kill stores 200 times
	@LVQ_TEST_BROKER=embedded LVQ_EFFORT=2 $(BIN)/pytest tests/spark tests/integration -m thorough -q -n 2 --max-worker-restart 0 --dist loadgroup
	@LVQ_TEST_BROKER=embedded LVQ_EFFORT=40 $(BIN)/pytest tests/integration/test_killed_stores_on_kafka.py -q --timeout 0

prove-lakehouse: $(READY) java $(CLASSES) ## Test Delta and Iceberg tables, then merge random histories into them for SECONDS=300; SEED=n starts with that seed
	@LVQ_TEST_BROKER=embedded LVQ_EFFORT=2 $(BIN)/pytest tests/spark/test_lakehouse.py -q
	@$(BIN)/python -m tests.spark.lakehouse --seconds $(or $(SECONDS),300) $(if $(SEED),--seed $(SEED))

torture: $(READY) java ## Kill consumers and brokers for SECONDS=300 and judge the outcome; SEED=n deals the same cards, KIND=scheduled does one kind of run, NODES=3 starts three brokers
	@$(BIN)/python -m tests.torture --seconds $(or $(SECONDS),300) $(if $(SEED),--seed $(SEED)) $(if $(KIND),--kind $(KIND)) $(if $(NODES),--nodes $(NODES))

lint: $(READY) ## Check style, types and prose
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m tests.typed
	@$(BIN)/python -m tests.prose

sizes: $(READY) ## Install each extra in a fresh environment, and measure it; what is above its limit is an error
	@$(BIN)/python -m tests.sizes

format: $(READY) ## Format the code and apply the automatic fixes
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

# The banner of the theme's authors is about another generator, and says nothing of these pages.
docs: $(READY) ## Build the documentation into site/; a broken link or an unreadable docstring is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "built site/index.html; to search the pages, too: $(BIN)/python -m http.server --directory site"

bench: $(READY) java ## Compare with bare client loops and with peers; PARTS="bootstrap consume" runs some of it
	@$(BIN)/python -m tests.benchmarks $(PARTS)

bench-spark: $(READY) java ## Compare Spark's usual recipes for the latest value of each key with ours
	@$(BIN)/python -m tests.benchmarks spark

compare: $(READY) java ## Send the same messages to Artemis and Broker-J, and compare the order in which they come out
	@$(BIN)/python -m tests.comparison

lock: $(READY) ## Resolve the newest allowed versions into requirements.lock
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --extra all --group dev \
	    --no-annotate --no-header pyproject.toml -o requirements.lock

clean: ## Remove the environment and all that tools have written
	@rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
