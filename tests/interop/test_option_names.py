"""The names of options in Hudi's bundles are those that PyHudi classifies."""

from __future__ import annotations

import re
import struct
import zipfile
from pathlib import Path

import pytest

from pyhudi.options.supported import check_known
from tests.interop.oracle import jar_of

NAMES = Path(__file__).parents[1] / "unit" / "options" / "hudi_options.txt"

INTERNAL = {
    *("_hoodie.record.key.gen.instant.time", "_hoodie.record.key.gen.partition.id", "_hoodie.spark.sql.merge.into.prepped"),
    *("_hoodie.spark.sql.writes.prepped", "_hoodie.writes.fileid.encoding", "hoodie.internal.spark.streaming.batch.id"),
    *("hoodie.bulkinsert.are.partitioner.records.sorted", "hoodie.is.update.record.for.mor", "hoodie.metadata.fallback.enable"),
    *("hoodie.metadata", "hoodie.metaserver", "hoodie.metrics", "hoodie.table.service.manager", "hoodie.write.lock.app_id"),
    *("hoodie.properties", "hoodie.properties.backup", "hoodie.properties.updated", "hoodie.query.as.ro.table"),
    *("hoodie.read.columns.set", "hoodie.realtime.merge.skip", "hoodie.support.payload", "hoodie.vector.columns"),
    *("hoodie.record.merge.property.hoodie.payload.delete.field", "hoodie.record.merge.property.hoodie.payload.delete.marker"),
    *("hoodie.instant.time", "hoodie.schema.internal.querySchema", "hoodie.tablePath", "hoodie.valid.commits.list"),
    *(
        "hoodie.metrics.cloudwatch",
        "hoodie.metrics.datadog",
        "hoodie.metrics.graphite",
        "hoodie.metrics.jmx",
        "hoodie.metrics.m3",
    ),
    *("hoodie.metrics.prometheus", "hoodie.metrics.pushgateway"),
    "hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value",
    "hoodie.write.partial.update.unavailable.value",
}
"""Names that Hudi passes between its own parts, and beginnings of names."""

_SIZES = {3: 5, 4: 5, 5: 9, 6: 9, 7: 3, 8: 3, 9: 5, 10: 5, 11: 5, 12: 5, 15: 4, 16: 3, 17: 5, 18: 5, 19: 3, 20: 3}
"""Bytes of the entries of a constant pool by their tag, except texts (1). Longs and doubles (5, 6) take two places."""


def string_constants(data: bytes) -> list[str]:
    """The string constants of a class file."""
    (count,) = struct.unpack_from(">H", data, 8)
    position, place = 10, 1
    texts: dict[int, bytes] = {}
    strings: list[int] = []
    while place < count:
        tag = data[position]
        if tag == 1:
            (length,) = struct.unpack_from(">H", data, position + 1)
            texts[place] = data[position + 3 : position + 3 + length]
            position += 3 + length
        else:
            if tag == 8:
                strings.append(struct.unpack_from(">H", data, position + 1)[0])
            position += _SIZES[tag]
        place += 2 if tag in (5, 6) else 1
    return [texts[string].decode("utf-8", "replace") for string in strings]


def names_in(bundle: Path) -> set[str]:
    """The names in classes that declare options."""
    found: set[str] = set()
    with zipfile.ZipFile(bundle) as archive:
        for name in archive.namelist():
            if name.startswith("org/apache/hudi/") and name.endswith(".class"):
                data = archive.read(name)
                if b"ConfigProperty" in data:
                    found.update(text for text in string_constants(data) if re.fullmatch(r"_?hoodie\.[\w.-]*\w", text))
    return found


@pytest.mark.parametrize("release", ["1.0.2", "1.1.1", "1.2.0"])
def test_every_name_of_a_bundle_is_classified(release: str) -> None:
    if not jar_of(release).exists():
        pytest.skip(f"the bundle of Apache Hudi {release} is not here; run `scripts/setup.sh hudi {release}`")
    names = names_in(jar_of(release)) - INTERNAL
    assert len(names) > 600
    for name in sorted(names):
        check_known(name)
    listed = {line.split(" ")[0] for line in NAMES.read_text(encoding="utf-8").splitlines() if release in line}
    # The list has the names that Hudi composes, too.
    assert len(listed & names) > 600
