# Run `make setup` once, `make check` while working and `make test` before a commit. See CONTRIBUTING.md.
PY := .venv/bin/python
# Number of pytest workers. A worker with a JVM needs about 4 GB.
WORKERS ?= 2
# Write compiled modules even if the environment disables it: otherwise each Spark worker compiles them again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup setup-hudi setup-newest-hudi setup-servers test test-rest test-full test-wide check lint types unit test-lowest test-newest test-python coverage test-spark test-pyspark test-interop test-integrations test-browser golden bench bench-check bench-curves bench-writers demo docs dist clean

help:
	@echo 'make setup         create .venv from uv.lock; install Java if it is missing (Debian, as root)'
	@echo 'make setup-hudi    download Apache Hudi 1.0.2 and 1.1.1 for the interop tests; make setup-newest-hudi: 1.2.0'
	@echo 'make setup-servers install HDFS, HBase, DynamoDB Local, Azurite and more S3 servers, for the wide tests'
	@echo 'make check         run ruff, vulture (dead code), deptry (dependencies), mypy --strict and the unit tests of the smoke tier; no JVM'
	@echo 'make test          run the smoke tier: all tests except combinations, and smoke suites on Spark and against Apache Hudi'
	@echo 'make test-full     run all tests except the wide combinations; make test-rest: those of them that make test skips'
	@echo 'make test-wide     run every combination, more seeds and all servers: one to two hours'
	@echo 'make test-lowest   run unit and component tests with the lowest dependency versions of pyproject.toml; make test-newest: the newest'
	@echo 'make test-python VERSION=3.13   run unit and component tests on another Python version'
	@echo 'make coverage      measure branch coverage of the unit and component tests; fail below the minimum'
	@echo 'make test-spark    run the tests on PySpark; make test-interop: those against Apache Hudi'
	@echo 'make test-pyspark VERSION=4.1   run the tests on another PySpark release'
	@echo 'make test-integrations   test the packages for Airflow, Dagster, dbt and dlt against those tools'
	@echo 'make test-browser  test the report in headless Chromium, if installed'
	@echo 'make golden        recreate the tables of tests/golden with Apache Hudi'
	@echo 'make bench-check   compare eleven steps with the last published run; report changes above 25%'
	@echo 'make bench-curves  measure how the cost of small commits and reads grows with table size'
	@echo 'make bench         run the quick benchmark; make bench-writers: many writers of one table'
	@echo 'make demo [URI=...]   run the demo, on local disk or in an object store; make docs: build the documentation site'
	@echo 'make dist          build and check the wheel and the source distribution; install them on each available Python'

setup: .venv/.done
	@scripts/setup.sh java

.venv/.done: pyproject.toml uv.lock scripts/setup.sh
	scripts/setup.sh python
	@touch $@

setup-hudi: setup
	@scripts/setup.sh hudi
	@scripts/setup.sh hudi 1.1.1

setup-newest-hudi: setup
	@scripts/setup.sh hudi 1.2.0

setup-servers: setup
	@scripts/setup.sh servers
	@scripts/setup.sh versitygw

# tests/support/tiers.py describes the tiers. `make test CHECKED=1` leaves out the unit tests, which `make check` runs.
PYTEST := $(PY) -m pytest -n $(WORKERS) --durations=25
# Folders of the tests that run in one process.
IN_PROCESS := tests/unit tests/component tests/golden tests/conformance

test: export PYHUDI_TIER := smoke
test: setup setup-hudi
	$(PYTEST) $(if $(CHECKED),-m 'not unit' --ignore tests/unit) tests

test-rest: export PYHUDI_TIER := rest
test-rest: setup setup-hudi setup-newest-hudi
	$(PYTEST) $(if $(SELECT),-m '$(SELECT)') tests

# The unit and component tests run with coverage, the others without.
test-full: export PYHUDI_TIER := full
test-full: setup setup-hudi setup-newest-hudi coverage
	$(PYTEST) -m 'not unit and not component' tests

test-wide: export PYHUDI_TIER := wide
test-wide: setup setup-hudi setup-newest-hudi setup-servers
	$(PYTEST) tests

# mypy takes one core while the other tools take the second.
check: .venv/.done
	@$(MAKE) --no-print-directory -j2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) lint types unit

lint: .venv/.done
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m vulture
	$(PY) -m deptry src

types: .venv/.done
	$(PY) -m mypy

unit: export PYHUDI_TIER := smoke
unit: .venv/.done
	$(PY) -m pytest -n auto -m unit tests/unit tests/test_*.py

test-lowest: .venv/.done
	scripts/setup.sh lowest
	.venv-lowest/bin/python -m pytest -n $(WORKERS) tests/unit tests/component

test-newest: .venv/.done
	scripts/setup.sh newest
	.venv-newest/bin/python -m pytest -n $(WORKERS) tests/unit tests/component

test-python: .venv/.done
	scripts/setup.sh on $(VERSION)
	.venv-$(VERSION)/bin/python -m pytest -n $(WORKERS) tests/unit tests/component

# Branch coverage of the unit and component tests, with the floor of [tool.coverage.report] and the ten least covered modules.
coverage: export PYHUDI_TIER := full
coverage: .venv/.done
	scripts/setup.sh python --group coverage
	$(PY) -m coverage erase
	$(PY) -m coverage run -m pytest -n $(WORKERS) -m 'unit or component' $(IN_PROCESS) tests/test_*.py
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report --format=text --fail-under=0 | head -n 12
	$(PY) -m coverage report --format=total

test-spark: setup
	$(PY) -m pytest -m 'spark and not interop' tests

# The Spark tests on another PySpark: make test-pyspark VERSION=4.1
test-pyspark: setup
	scripts/setup.sh pyspark $(VERSION)
	.venv-pyspark-$(VERSION)/bin/python -m pytest -m 'spark and not interop' tests

test-interop: setup setup-hudi setup-newest-hudi
	$(PY) -m pytest -m interop tests

# Test each package of integrations/ against the released tool, each in its own environment.
INTEGRATIONS ?= airflow dagster dbt dlt
test-integrations:
	for name in $(INTEGRATIONS); do \
	  scripts/setup.sh integration $$name && \
	  .venv-$$name/bin/python -m pytest -q -p no:cacheprovider -c /dev/null --rootdir integrations/$$name integrations/$$name/tests || exit 1; \
	done

test-browser: .venv/.done
	scripts/setup.sh python --group browser
	$(PY) -m pytest tests/test_report_in_browser.py

golden: setup setup-hudi
	@scripts/setup.sh hudi 1.1.1
	$(PY) -m scripts.golden

# Write the quick profile to artifacts/bench: about 25 minutes on two idle cores. ARGUMENTS='--profile full' measures everything.
# The same command continues an interrupted run.
bench: setup setup-hudi
	$(PY) -m benchmarks $(ARGUMENTS)

# Compare CPU seconds of eleven steps between the code of the last published run and this one: minutes, no JVM.
bench-check: .venv/.done
	$(PY) -m benchmarks check $(ARGUMENTS)

# How cost grows along each axis of a table's size: hours for all sizes, minutes with ARGUMENTS='--scenarios curve-commits'.
bench-curves: .venv/.done
	$(PY) -m benchmarks --profile full --scenarios curves $(ARGUMENTS)

# Eight processes that write to one table: hours on a small machine. See benchmarks/README.md.
bench-writers: setup
	$(PY) -m benchmarks.writers $(ARGUMENTS)

# make demo URI=s3://bucket/demo uses the credentials of the environment (docs/object-stores.md) or STORAGE='key=value ...'.
demo: setup
	$(PY) -m scripts.demo $(if $(URI),--uri '$(URI)') $(foreach option,$(STORAGE),--storage '$(option)')

docs: .venv/.done
	scripts/setup.sh python --group docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

# Build the distributions, inspect them and install them into new environments.
dist:
	scripts/dist.sh

clean:
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build site artifacts spark-warehouse
