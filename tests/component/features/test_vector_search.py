"""Vector search equals an exhaustive comparison in double precision, with filters, deletes, nulls and several queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import InvalidRequest
from pyhudi.features.vector_search.nearest import Nearest

DIMENSION = 5


def exhaustive(query: Any, vectors: Any, metric: str) -> Any:
    vectors = np.asarray(vectors, np.float64)
    if metric == "l2":
        return np.sqrt(((vectors - query) ** 2).sum(axis=1))
    if metric == "dot":
        return -(vectors @ query)
    scale = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
    return 1 - np.divide(vectors @ query, scale, out=np.zeros(len(vectors)), where=scale != 0)


@pytest.mark.sample(3)
@pytest.mark.parametrize("element", ["FLOAT", "DOUBLE", "INT8"])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_search_equals_an_exhaustive_comparison(tmp_path: Path, table_type: str, element: str) -> None:
    random = np.random.default_rng(7)
    values = random.integers(-127, 128, (300, DIMENSION))
    vectors: Any = values if element == "INT8" else (values / 7).astype(np.float32)
    name = f"VECTOR({DIMENSION}, {element})"
    emb = pa.field("emb", pa.list_(pa.float32()), metadata={"hudi_type": name})
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("part", pa.string()), emb])
    table = Table.create(tmp_path / "t", record_key="id", partition_by="part", table_type=table_type, schema=schema)
    ids = np.arange(300)
    table.upsert({"id": ids, "part": [str(i % 3) for i in ids], "emb": vectors})
    table.upsert({"id": ids[:30], "part": [str(i % 3) for i in ids[:30]], "emb": [None] * 10 + list(vectors[10:30] * -1)})
    table.delete([40, 41])
    live = {i: vectors[i] * (-1 if i < 30 else 1) for i in range(10, 300) if i not in (40, 41)}
    queries = random.standard_normal((3, DIMENSION))
    for metric in ("cosine", "l2", "dot"):
        for condition, kept in (
            (None, live),
            ("part = '1' and id > 50", {i: v for i, v in live.items() if i % 3 == 1 and i > 50}),
        ):
            found = table.search("emb", queries, k=7, metric=metric, filter=condition)
            assert found.column_names == ["query", "id", "part", "_hudi_distance"]
            for number, query in enumerate(queries):
                distances = exhaustive(query, list(kept.values()), metric)
                rows = [row for row in found.to_pylist() if row["query"] == number]
                assert np.allclose([row["_hudi_distance"] for row in rows], np.sort(distances)[:7], rtol=1e-12, atol=1e-12)
                by_id = dict(zip(kept, distances, strict=True))
                assert np.allclose([by_id[row["id"]] for row in rows], [row["_hudi_distance"] for row in rows])
    single = table.search("emb", queries[0], k=1000, columns=["id"])
    assert single.num_rows == len(live) and single.column_names == ["id", "_hudi_distance"]
    assert table.search("emb", queries[0], k=2, columns=[]).column_names == ["_hudi_distance"]


def test_vector_search_function_has_the_columns_and_order_of_hudi(tmp_path: Path) -> None:
    name = f"hudi.`{tmp_path}/t`"
    hp.sql(f"CREATE TABLE {name} (id INT, emb VECTOR(2), n STRING) USING hudi TBLPROPERTIES (primaryKey='id')")
    values = "(1, ARRAY(3.0, 4.0), 'a'), (2, ARRAY(1.0, 0.0), 'b'), (3, NULL, 'c'), (4, ARRAY(0.0, 0.0), 'd')"
    values += ", (5, ARRAY(-3.0, -4.0), 'e')"
    hp.sql(f"INSERT INTO {name} VALUES {values}")

    def found(metric: str) -> list[tuple[int, float]]:
        rows = hp.sql(f"SELECT * FROM hudi_vector_search('{tmp_path}/t', 'emb', ARRAY(1.0, 2.0), 10{metric})")
        assert rows.column_names[-3:] == ["id", "n", "_hudi_distance"] and "emb" not in rows.column_names
        return [(row["id"], round(row["_hudi_distance"], 9)) for row in rows.to_pylist()]

    # As Hudi 1.2.0 returns them.
    assert found("") == found(", 'cosine'") == [(1, 0.01613009), (2, 0.552786405), (4, 1.0), (5, 1.98386991)]
    assert found(", 'l2'") == [(2, 2.0), (4, 2.236067977), (1, 2.828427125), (5, 7.211102551)]
    assert found(", 'dot_product'") == [(1, -11.0), (2, -1.0), (4, 0.0), (5, 11.0)]
    for arguments, message in (
        ("'emb', ARRAY(1.0), 2", "VECTOR\\(2\\)"),
        ("'emb', ARRAY(1.0, 2.0), 0", "k must be"),
        ("'emb', ARRAY(1.0, 2.0), 2, 'foo'", "unknown metric"),
        ("'n', ARRAY(1.0, 2.0), 2", "not a vector column"),
        ("'emb', 'x', 2", "ARRAY"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            hp.sql(f"SELECT * FROM hudi_vector_search('{tmp_path}/t', {arguments})")


@pytest.mark.parametrize("metric", ["cosine", "l2", "dot"])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30, 1e-44])
def test_nearest_is_exact_for_close_and_extreme_vectors(metric: str, scale: float) -> None:
    random = np.random.default_rng(3)
    close = random.standard_normal(8) + random.standard_normal((2000, 8)) * 1e-6
    vectors: Any = (close.astype(np.float32) * np.float64(scale)).astype(np.float32)
    vectors[17], vectors[18] = 0, np.nan
    query = random.standard_normal((1, 8))
    nearest = Nearest(query, 20, metric)
    for start in range(0, 2000, 700):
        part = vectors[start : start + 700]
        nearest.add(part, np.arange(start, start + len(part)))
    with np.errstate(all="ignore"):
        distances = exhaustive(query[0], vectors, metric)
    assert np.allclose(nearest.distances(0), np.sort(distances)[:20], rtol=1e-9, atol=1e-12 * min(1.0, scale) + 1e-13)
    assert 18 not in nearest.rows[0]
