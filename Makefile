# `make setup` once, then `make check` while working and `make test` before handing in. CONTRIBUTING.md says more.
PY := .venv/bin/python
# Each worker of a whole run needs about 4 GB where it has a JVM.
WORKERS ?= 2
# Compiled modules are written even where the environment forbids it: otherwise each Spark worker compiles them again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup setup-hudi setup-newest-hudi setup-servers test test-rest test-full test-wide check lint types unit test-lowest test-newest test-python coverage test-spark test-pyspark test-interop test-integrations test-browser golden bench bench-check bench-curves bench-writers demo docs dist clean

help:
	@echo 'make setup         .venv from uv.lock, and Java where there is none (Debian, as root)'
	@echo 'make setup-hudi    Apache Hudi 1.0.2 and 1.1.1, for the interop tests; make setup-newest-hudi: 1.2.0'
	@echo 'make setup-servers HDFS, HBase, DynamoDB Local, Azurite and more S3 servers, for the wide tests'
	@echo 'make check         ruff, vulture (dead code), deptry (dependencies), mypy --strict, layers, unit tests of the smoke tier; no JVM'
	@echo 'make test          every test but combination runs, with a smoke suite on Spark and one against Apache Hudi'
	@echo 'make test-full     every test but the wide combinations; make test-rest: what make test leaves out of it'
	@echo 'make test-wide     every combination, more seeds, all servers: an hour or two'
	@echo 'make test-lowest   the unit and component tests on the lowest versions that pyproject.toml allows; make test-newest: on the newest'
	@echo 'make test-python VERSION=3.13   the unit and component tests on another Python'
	@echo 'make coverage      branch coverage of the unit and component tests, with a floor'
	@echo 'make test-spark    the tests on PySpark; make test-interop: those against Apache Hudi'
	@echo 'make test-pyspark VERSION=4.1   the tests on PySpark, on another release of it'
	@echo 'make test-integrations   the packages for Airflow, Dagster, dbt and dlt, against the real tools'
	@echo 'make test-browser  the report in a headless Chromium, where there is one'
	@echo 'make golden        let Apache Hudi write tests/golden anew'
	@echo 'make bench-check   eleven steps, before (the last published run) and now in turn: what moved by more than a quarter'
	@echo 'make bench-curves  how the cost of small commits and reads grows with rows, commits, partitions, columns, files, keys, logs'
	@echo 'make bench         the quick benchmark; make bench-writers: many writers of one table; make demo [URI=...]: a tour, here or in a store; make docs: the site'
	@echo 'make dist          the wheel and the source distribution, checked, and tried on each Python that is here'

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
# Where the unit and component tests are.
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

# Each of integrations/ against the real package, in an environment of its own.
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

# The quick profile, to artifacts/bench: about 25 minutes on two idle cores. ARGUMENTS='--profile full' measures everything; the
# same command continues a run that was interrupted.
bench: setup setup-hudi
	$(PY) -m benchmarks $(ARGUMENTS)

# CPU seconds of eleven steps, with the code of the last published run and with this one, as pairs: minutes, no JVM.
bench-check: .venv/.done
	$(PY) -m benchmarks check $(ARGUMENTS)

# How cost grows along each axis of a table's size: hours for all sizes, minutes with ARGUMENTS='--scenarios curve-commits'.
bench-curves: .venv/.done
	$(PY) -m benchmarks --profile full --scenarios curves $(ARGUMENTS)

# Eight processes that write to one table: hours on a small machine. benchmarks/README.md says more.
bench-writers: setup
	$(PY) -m benchmarks.writers $(ARGUMENTS)

# make demo URI=s3://bucket/demo: there, reached as the environment says (docs/object-stores.md), or by STORAGE='key=value ...'.
demo: setup
	$(PY) -m scripts.demo $(if $(URI),--uri '$(URI)') $(foreach option,$(STORAGE),--storage '$(option)')

docs: .venv/.done
	scripts/setup.sh python --group docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

# What would be published: built, looked into, and installed into environments of its own.
dist:
	scripts/dist.sh

clean:
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build site artifacts spark-warehouse
