"""Apache Hudi reads unusual column types with the written values, from base files and logs."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pyhudi import Table
from tests.interop.oracle import ApacheHudi
from tests.support.arrow_types import column_types, columns_of, values_of
from tests.support.needs import WIDE

_QUIET = {"hoodie.index.bloom.num_entries": 100}


@settings(
    max_examples=8 if WIDE else 1,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.sampled_from(["avro", "parquet"]),
    st.lists(column_types(), min_size=12, max_size=12).flatmap(
        lambda found: st.tuples(columns_of(found, 4), columns_of(found, 4))
    ),
)
def test_hudi_reads_values_of_every_arrow_type(
    apache_hudi: ApacheHudi,
    tmp_path_factory: pytest.TempPathFactory,
    blocks: str,
    batches: tuple[dict[str, pa.Array], dict[str, pa.Array]],
) -> None:
    path = tmp_path_factory.mktemp("odd") / "t"
    # As Spark 4 reads: Spark 3 refuses instants before 1900 in files of other writers.
    apache_hudi.sql("SET spark.sql.parquet.datetimeRebaseModeInRead=CORRECTED")
    options = {**_QUIET, "hoodie.logfile.data.block.format": blocks}
    table = Table.create(path, record_key="id", ordering="ts", table_type="mor", options=options)
    for stamp, columns in enumerate(batches):
        table.upsert(pa.table({"id": pa.array(range(stamp * 2, stamp * 2 + 4), pa.int64()), "ts": [stamp] * 4, **columns}))
    schema = table.schema()
    expected = values_of(table.scan().to_arrow(), schema)
    assert len(expected) == 6
    assert values_of(apache_hudi.read(path), schema) == expected
    table.compact()
    assert values_of(apache_hudi.read(path), schema) == expected
