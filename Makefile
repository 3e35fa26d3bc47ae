# Targets explain themselves: `make` lists them. Everything lives in .venv; nothing else on the machine is touched,
# save Java, which `make setup` installs from the distribution's packages where it is missing and rights allow.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
SECONDS ?= 60
STAMP := $(VENV)/.installed
SPARK_CLASSES := $(VENV)/spark.jsa

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format docs bench fuzz fuzz-night mutants vectors test-servers test-formats test-ui lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv, install the locked dependencies and the project, and see to Java

$(STAMP): requirements.lock pyproject.toml scripts/setup
	@PYTHON="$(PYTHON)" scripts/setup $(VENV)
	@touch $@

$(SPARK_CLASSES): $(STAMP) tests/jvm.py
	@echo "Archiving Spark's classes, so that the tests' JVMs start faster; this takes half a minute, once." >&2
	@rm -f $@
	@$(BIN)/python -m tests.jvm

demo: setup ## A live shop database into Delta tables, verified; ARGS="--seconds 30 --json"
	@$(BIN)/wal2lake demo $(ARGS)

test: $(SPARK_CLASSES) ## All tests, two at a time: unit, property, real server, Spark; ARGS="-k name" chooses
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

check: setup ## Linters, types and the walls between the layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: setup ## Rewrite the code in the house's format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: setup ## The documentation as a site, build/site/index.html; it is read without a network
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo build/site/index.html

bench: setup ## All benchmarks, into build/bench/report.md; ARGS=capture runs one, "capture --against main" compares
	@$(BIN)/python -m bench $(ARGS)

fuzz: setup ## Mutate every protocol vector and change log file for SECONDS (60)
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

fuzz-night: setup ## Ten million mutated messages
	@$(BIN)/python -m tests.fuzz --count 10000000

mutants: setup ## Change the code in 100 places, one at a time: do the tests notice? ARGS="--seed 7 --only wire"
	@$(BIN)/python -m tests.mutants $(ARGS)

vectors: setup ## Capture the protocol vectors anew from PostgreSQL 13 to 18, and write docs/protocol from them
	@$(BIN)/python -m tests.vectors.make
	@$(BIN)/python -m tests.vectors.pages

test-servers: setup ## The protocol against PostgreSQL 13 to 18, three at a time (fetches their servers with npm)
	@$(BIN)/python -m pytest tests/servers -m servers -n 3 $(ARGS)

test-formats: setup ## The long tests of lakes that are not Delta's: Iceberg, Parquet, a format of one's own
	@$(BIN)/python -m pytest tests/sinks tests/pipeline -m formats -n 2 $(ARGS)

test-ui: setup ## The page in a real browser over a real pipeline; makes the pictures of docs/ui.md (needs Chromium)
	@scripts/browser
	@$(BIN)/python -m pytest tests/ui -m browser $(ARGS)
	@ls $(CURDIR)/docs/pictures/ui-*.png

lock: ## Resolve the dependencies anew into requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
		--custom-compile-command "make lock" --all-extras pyproject.toml scripts/tools.in --overrides scripts/overrides.in -o requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
		--custom-compile-command "make lock" --extra all pyproject.toml --constraint requirements.lock -o deploy/requirements.lock

clean: ## Remove .venv, caches and the demo's folder
	@rm -rf $(VENV) demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
