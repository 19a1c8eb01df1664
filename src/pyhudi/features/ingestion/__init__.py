"""Ingestion: jobs that read new rows of a source and commit them with the source's checkpoint (`pyhudi ingest`, `hp.Ingest`).

ingest_job        `Ingest`: the tables of a job, once or continuously, with a graceful stop
job_config        configuration: TOML or a mapping
ingest_table      one table: read, transform, check, write
checkpoints       checkpoints in commit metadata, under the keys of Hudi Streamer
source_protocol   what a source returns; a Python class with `read` is a source
*_source          sources: files, Hudi tables, SQL databases, Kafka
transforms        SQL and Python functions
row_checks        rows that do not fit, and error_rows, where they go
"""

from __future__ import annotations

from pyhudi.features import exports

_EXPORTS = {
    "Batch": "source_protocol",
    "Ingest": "ingest_job",
    "IngestResult": "ingest_table",
    "Limit": "source_protocol",
    "ReadContext": "source_protocol",
}
__getattr__ = exports(__name__, _EXPORTS)
