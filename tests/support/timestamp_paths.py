"""Options of tables whose partition paths are times in another format than the column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TIME = "hoodie.keygen.timebased."


def options_of_time_paths(input_format: str, output_format: str, zones: Mapping[str, str]) -> dict[str, Any]:
    """Key generator TIMESTAMP over the text column `day`; record key `id`. zones: by the last part of the option."""
    return {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
        f"{TIME}timestamp.type": "DATE_STRING",
        f"{TIME}input.dateformat": input_format,
        f"{TIME}output.dateformat": output_format,
        **{TIME + name: zone for name, zone in zones.items()},
    }
