"""Source files of a bootstrapped golden table, written again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyhudi.format.avro.container import encode_container
from pyhudi.format.avro.schema import parse_schema
from pyhudi.format.bootstrap_index import group_key
from pyhudi.format.hfile.hfile_writer import encode_hfile
from pyhudi.format.names import parse_base_file
from scripts.golden.cases import CITIES, trips

INDEX = Path(".hoodie") / ".aux" / ".bootstrap" / ".fileids"
SKELETONS = "*/*_00000000000001.parquet"
_SCHEMA = parse_schema(
    """{"type": "record", "name": "HoodieBootstrapFilePartitionInfo", "fields": [
         {"name": "bootstrapFileStatus", "type": {"type": "record", "name": "HoodieFileStatus", "fields": [
           {"name": "path", "type": {"type": "record", "name": "HoodiePath", "fields": [{"name": "uri", "type": "string"}]}},
           {"name": "length", "type": "long"},
           {"name": "modificationTime", "type": "long"}]}}]}"""
)


def write_sources(table: Path, folder: Path) -> None:
    """Writes what the case wrote below `folder`, and an index that names it; the files have several row groups."""
    rows = trips(range(9), 1)
    sources = {}
    for city in CITIES:
        path = folder / f"city={city}" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(rows.filter(pc.equal(rows["city"], city)).drop_columns(["city"]), path, row_group_size=2)
        sources[f"city={city}"] = path
    point_at(table, sources)


def point_at(table: Path, sources: dict[str, Path]) -> None:
    """Write the locations of the rows to a table's index.

    sources: by partition, as each file is at this time.
    """
    entries = {}
    for skeleton in table.glob(SKELETONS):
        name = parse_base_file(skeleton.name)
        assert name is not None
        source = sources[skeleton.parent.name]
        status = {
            "path": {"uri": f"file:{source}"},
            "length": source.stat().st_size,
            "modificationTime": source.stat().st_mtime_ns // 1_000_000,
        }
        key = group_key(skeleton.parent.name, name.file_id)
        entries[key.encode()] = encode_container(_SCHEMA, {"bootstrapFileStatus": status})
    keys = sorted(entries)
    data = encode_hfile([(pa.array(keys, pa.binary()), pa.array([entries[key] for key in keys], pa.binary()))])
    (file,) = (table / INDEX).glob("*.hfile")
    file.write_bytes(data)
