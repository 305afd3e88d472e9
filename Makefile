.DEFAULT_GOAL := help
# What .venv was made with, so that only a PYTHON that is given makes it anew.
PYTHON ?= $(or $(wildcard .venv/bin/python),python3)
BIN := .venv/bin
export PYTHONPATH := include$(if $(PYTHONPATH),:$(PYTHONPATH))

##@ Start here
.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Create .venv and .jars (needs Python 3.11-3.13 and Java 17)
	@$(PYTHON) include/devstack/bootstrap.py

.PHONY: setup-s3
setup-s3: ## Fetch the jars that Spark needs for a warehouse in a bucket as well
	@$(PYTHON) include/devstack/bootstrap.py --s3

.PHONY: setup-minio
setup-minio: setup ## Build MinIO with Go, into a cache of yours, so that the tests of S3 run on it too
	@$(BIN)/python -m devstack.minio

.PHONY: setup-registry
setup-registry: setup ## Fetch Apicurio, a schema registry, into a cache of yours, for the tests of Avro
	@$(BIN)/python -m devstack.apicurio

.PHONY: setup-axe
setup-axe: setup ## Fetch axe-core, into a cache of yours, so that browser tests check accessibility
	@$(BIN)/python -m devstack.axe

.PHONY: setup-driver
setup-driver: setup ## Archive the classes of Spark, so that drivers of one's own (local[N]) start sooner
	@$(BIN)/python -m tidemark.engine.session.class_archive $(or $(TIDEMARK_JARS),.jars)

.PHONY: setup-flink
setup-flink: setup ## Fetch Apache Flink, into a cache of yours, so that `make bench` measures it too
	@$(BIN)/python -m benchmarks.peers.setup_flink

.PHONY: demo
demo: $(if $(filter s3,$(WAREHOUSE)),setup-s3,setup) ## Checkpoint the real flights of 2013, check every row (DEMO=quick: half; WAREHOUSE=s3: in a bucket)
	@$(BIN)/python -m devstack.demo

.PHONY: demo-weather
demo-weather: setup-registry ## Join the weather to these flights, with Avro from a registry, and check every row
	@$(BIN)/python -m devstack.weather

##@ The stack
.PHONY: up
up: setup ## Start Kafka, Spark and Airflow
	@$(BIN)/tidemark up

.PHONY: down
down: setup ## Stop everything that `up` started
	@$(BIN)/tidemark down

.PHONY: status
status: setup ## Say what is running, and where
	@$(BIN)/tidemark status

.PHONY: doctor
doctor: setup ## Name every missing prerequisite and its remedy
	@$(BIN)/tidemark doctor

##@ A cluster in containers
.PHONY: env
env: ## Make the secrets of docker-compose.yaml in .env, where they are missing
	@$(PYTHON) include/devstack/env_file.py .env

##@ Checks
.PHONY: test
test: setup-s3 ## Run the tests, but for what takes minutes for one answer
	@-$(BIN)/python -m devstack.minio
	@-$(BIN)/python -m devstack.apicurio
	@$(BIN)/python -m tests.side_by_side

.PHONY: test-more
# A part of what these run by default: a slow machine must end `.ci/run` in 90 minutes. `make test-nightly` runs the
# most, and planted bugs have bounds of their own.
test-more: export TIDEMARK_TEST_SCHEDULES ?= 2000
test-more: export TIDEMARK_TEST_RACES ?= 1000
test-more: export TIDEMARK_TEST_CRASH_CHUNKS ?= 15
test-more: export TIDEMARK_TEST_ERASURE_RACES ?= 40
test-more: export TIDEMARK_TEST_DELIVERY_WALKS ?= 64
test-more: export TIDEMARK_TEST_SHORT_DISK_WALKS ?= 50
test-more: setup-s3 ## Run the long ones: kills, power loss, schedules by the thousand, clusters, S3
	@-$(BIN)/python -m devstack.minio
	@-$(BIN)/python -m devstack.apicurio
	@-$(BIN)/python -m devstack.axe
	@TIDEMARK_TEST_UNTIL="$$TIDEMARK_TEST_MORE_UNTIL" $(BIN)/python -m tests.side_by_side --more

.PHONY: test-nightly
test-nightly: setup-s3 ## Run the demo in a bucket, the second demo, large state, other systems, and random tests with more cases
	@-$(BIN)/python -m devstack.minio
	@-$(BIN)/python -m devstack.apicurio
	@$(BIN)/python -m pytest $$($(BIN)/python -c "from tests.side_by_side import NIGHTLY; print(*NIGHTLY)")
	@TIDEMARK_TEST_SCALE=5 TIDEMARK_TEST_SCHEDULES=100000 TIDEMARK_TEST_RACES=40000 \
		TIDEMARK_TEST_ERASURE_RACES=600 TIDEMARK_TEST_WALKS=100 TIDEMARK_TEST_SHORT_DISK_WALKS=800 \
		TIDEMARK_TEST_DELIVERY_WALKS=600 \
		$(BIN)/python -m pytest tests/copies tests/deliveries tests/power_loss tests/property tests/publications tests/retention tests/simulation \
		tests/engine/test_nexmark.py
	@TIDEMARK_TEST_SCALE=20 $(BIN)/python -m pytest -o timeout=3600 tests/engine/test_windows.py tests/engine/test_timers.py \
		tests/engine/test_interval_joins.py tests/engine/test_co_process.py

.PHONY: test-fast
test-fast: setup ## Run the tests that need no service
	@$(BIN)/python -m pytest -q -m "not kafka and not spark and not airflow and not slow and not e2e"

.PHONY: test-faults
test-faults: setup ## Run the full cross of crash points
	@$(BIN)/python -m tests.faults.cross

.PHONY: lint
lint: setup ## Check style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

.PHONY: format
format: setup ## Rewrite files in the house format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: types
types: setup ## Check types, strictly
	@$(BIN)/mypy

##@ Measure and write
.PHONY: lock
lock: setup ## Write requirements.lock anew after a change of the dependencies, keeping versions that still fit
	@$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --no-annotate --quiet --output-file requirements.lock
	@$(BIN)/uv pip compile pyproject.toml --all-extras --group image --universal --python-version 3.11 \
		--constraint requirements.lock --no-emit-index-url --no-header --no-annotate --quiet \
		| sed 's/==.*//' | sort -u > requirements.image

# The commit that the tree is compared with: the last one before compactions without Spark.
BEFORE ?= 5cf32c71
.PHONY: bench
bench: setup-s3 ## Measure everything and write the pages; hours (BENCH=quick: small)
	@-$(BIN)/python -m devstack.minio
	@$(BIN)/python -m benchmarks.bench
	@$(BIN)/python -m benchmarks.state_costs
	@$(BIN)/python -m benchmarks.transform
	@$(BIN)/python -m benchmarks.process_rate
	@$(BIN)/python -m benchmarks.format_rate
	@$(BIN)/python -m benchmarks.restore_points
	@$(BIN)/python -m benchmarks.peers
	@$(BIN)/python -m benchmarks.publications.upkeep
	@$(BIN)/python -m benchmarks.publications
	@$(BIN)/python -m benchmarks.airflow_latency
	@$(BIN)/python -m benchmarks.large_batches
	@$(BIN)/python -m benchmarks.small_batches
	@$(BIN)/python -m benchmarks.bucket
	@$(BIN)/python -m benchmarks.event_time
	@$(BIN)/python -m benchmarks.closed_history
	@$(BIN)/python -m benchmarks.nexmark
	@$(BIN)/python -m benchmarks.scale
	@$(BIN)/python -m benchmarks.cores
	@$(BIN)/python -m benchmarks.backlog
	@$(BIN)/python -m benchmarks.before_and_after $(BEFORE)
ifneq ($(BENCH),quick)
	@$(BIN)/python -m benchmarks.long_run
	@$(BIN)/python -m benchmarks.object_store
	@$(BIN)/python -m benchmarks.history_pages
	@$(BIN)/python -m benchmarks.bucket_pages
	@$(BIN)/python -m benchmarks.first_answers
	@$(BIN)/python -m benchmarks.retention_costs
	@$(BIN)/python -m benchmarks.memory 8000000 64000000
	@$(BIN)/python -m benchmarks.publications.policies
endif
	@$(BIN)/python -m benchmarks.tables

.PHONY: docs
docs: setup ## Check the documentation's examples, tables and links
	@$(BIN)/python -m pytest -q tests/test_docs.py
