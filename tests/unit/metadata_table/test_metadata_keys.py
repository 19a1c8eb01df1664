"""Keys of the metadata table, with values of Apache Hudi."""

from __future__ import annotations

from pyhudi.metadata_table.metadata_keys import (
    bloom_filter_keys,
    column_stats_keys,
    column_stats_prefix,
    expression_partition_key,
    expression_partition_prefix,
    file_hashes,
    partition_stats_key,
)

FILE = "2622d700-2c44-4e95-a091-8424bcaeb9e6-0_0-31-34_20261121044645518.parquet"


def test_keys() -> None:
    hashes = file_hashes([FILE, "x"])
    assert hashes.to_pylist() == ["CAGx/Ue/0sZfF9Xx0Sr7kw==", "ndTkYSaMgDT1yFZOFVxnpg=="]
    assert column_stats_keys("part", "part=é ü", hashes).to_pylist() == [
        "+WGrmgkN3io=WG35Q1Xm3YQ=CAGx/Ue/0sZfF9Xx0Sr7kw==",
        "+WGrmgkN3io=WG35Q1Xm3YQ=ndTkYSaMgDT1yFZOFVxnpg==",
    ]
    assert column_stats_prefix("_hoodie_record_key") == "uSJGdDiVr/k="
    assert partition_stats_key("part", "") == "+WGrmgkN3io=FXThHwelITM="
    assert bloom_filter_keys("", hashes)[1].as_py() == "FXThHwelITM=ndTkYSaMgDT1yFZOFVxnpg=="
    assert expression_partition_key("l", "part=aa") == "3FQGdeKPobc=2CMHrhWVE9w=BrgLMXCAgW4="
    assert expression_partition_prefix("l") == "3FQGdeKPobc=2CMHrhWVE9w="


def test_a_partition_prefix_begins_the_keys_of_its_files() -> None:
    assert column_stats_keys("c", "p", file_hashes([FILE]))[0].as_py().startswith(partition_stats_key("c", "p"))
