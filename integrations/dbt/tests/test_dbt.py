"""dbt runs a project whose source and models are Hudi tables, with tests on the models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from dbt.cli.main import dbtRunner, dbtRunnerResult

import pyhudi as hp

os.environ["DO_NOT_TRACK"] = "1"

_FILES = {
    "dbt_project.yml": "{name: trips, version: '1.0', profile: trips, model-paths: [models]}",
    "profiles.yml": """
trips:
  target: dev
  outputs:
    dev: {type: duckdb, path: '@/trips.duckdb', external_root: '@/external', plugins: [{module: pyhudi_dbt, alias: hudi}]}
""",
    "models/schema.yml": """
version: 2
sources:
  - name: lake
    schema: lake
    config: {plugin: hudi}
    tables:
      - {name: fares, config: {meta: {plugin: hudi, hudi_path: '@/lake/fares'}}}
models:
  - name: totals
    columns: [{name: city, data_tests: [not_null, unique]}]
""",
    "models/totals.sql": """
{{ config(materialized='external', plugin='hudi', hudi_path='@/lake/totals', hudi_strategy=var('strategy', 'merge'),
          unique_key='city') }}
select city, sum(fare) as fare from {{ source('lake', 'fares') }} where day >= {{ var('since', 0) }} group by city
""",
    "models/doubled.sql": "{{ config(materialized='table') }} select city, fare * 2 as fare from {{ ref('totals') }}",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in _FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("@", str(tmp_path)))
    (tmp_path / "external").mkdir()
    rows = [{"id": 1, "city": "sf", "fare": 1.0, "day": 1}, {"id": 2, "city": "ny", "fare": 2.0, "day": 1}]
    hp.write(tmp_path / "lake" / "fares", rows, record_key="id")
    return tmp_path


def build(project: Path, *arguments: str) -> dbtRunnerResult:
    folders = ("--project-dir", str(project), "--profiles-dir", str(project))
    return dbtRunner().invoke(["--quiet", "build", *folders, *arguments])


def rows_of(project: Path) -> list[Any]:
    rows = hp.Table(project / "lake" / "totals").scan(["city", "fare"]).to_arrow().to_pylist()
    return sorted((row["city"], row["fare"]) for row in rows)


def test_a_model_merges_into_its_table_from_a_hudi_source(project: Path) -> None:
    assert build(project).success
    assert rows_of(project) == [("ny", 2.0), ("sf", 1.0)]
    hp.write(project / "lake" / "fares", [{"id": 3, "city": "sf", "fare": 5.0, "day": 2}], "upsert")
    assert build(project, "--vars", "{since: 2}").success
    assert rows_of(project) == [("ny", 2.0), ("sf", 5.0)]


def test_overwrite_replaces_and_append_adds(project: Path) -> None:
    assert build(project, "--vars", "{strategy: overwrite}").success
    assert build(project, "--vars", "{strategy: overwrite}").success
    assert rows_of(project) == [("ny", 2.0), ("sf", 1.0)]
    assert build(project, "--vars", "{strategy: append}").success
    assert len(rows_of(project)) == 4


def test_a_strategy_that_is_unknown_fails_the_model(project: Path) -> None:
    result = build(project, "--vars", "{strategy: replace}")
    assert not result.success
    messages = [str(node.message) for node in result.result.results]
    assert any("hudi_strategy 'replace' is none of append" in message for message in messages)
