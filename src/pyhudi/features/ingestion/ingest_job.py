"""`Ingest`: a job of one or several tables in one process."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from pyhudi.api.argument_types import checked_class
from pyhudi.errors import EngineFailed, HudiError, StorageUnavailable, WriteConflict, get_logger
from pyhudi.features.ingestion.ingest_table import IngestResult, TableIngestion
from pyhudi.features.ingestion.job_config import TableJob, load_config
from pyhudi.storage.environment import Environment, SystemEnvironment

if TYPE_CHECKING:
    from pyhudi.engines.spark.type_conversion import SparkSession

_LOG = get_logger("pyhudi.ingestion")
_MAX_PAUSE_S = 300.0


@checked_class
class Ingest:
    """An ingestion job: reads new rows of each source, and commits them to its table with the source's checkpoint.

    A job stores no state of its own: a restarted job, also on another machine, continues where the tables are. Rows are
    neither lost nor written twice, also if two instances of a job run at once.

    Example:
        >>> job = hp.Ingest({"path": "/data/trips", "record_key": "id", "source": {"kind": "files", "path": "/data/incoming"}})
        >>> results = job.run()
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, object],
        *,
        spark: SparkSession | None = None,
        environment: Environment | None = None,
    ) -> None:
        """Check a job's configuration. Nothing is opened yet.

        Args:
            config: A TOML file; or a mapping with its keys, or with the keys of its only table. See `docs/ingestion.md`.
            spark: Session that reads, transforms, checks and writes the rows; None does so in this process.
            environment: Clock, id generator and sleep function; the system's by default.

        Raises:
            InvalidRequest: A key or a value is unknown, or one is missing.
        """
        self._config = load_config(config)
        self._environment = environment or SystemEnvironment()
        self._spark = spark
        self._stop = threading.Event()

    def run(self) -> tuple[IngestResult, ...]:
        """Run the job: until no source has new rows, or, if it is continuous, until `stop` is called.

        A failed table does not stop the others. A failure that may pass, such as an unavailable store, is retried first.

        Returns:
            What was done for each table.

        Raises:
            HudiError: The first error of a table, when the others are finished.
        """
        tables = self._config.tables
        with ThreadPoolExecutor(min(self._config.threads, len(tables)), thread_name_prefix="pyhudi-ingestion") as threads:
            results = tuple(threads.map(self._run_table, tables))
        failed = next((result.error for result in results if result.error is not None), None)
        if failed is not None:
            raise failed
        return results

    def stop(self) -> None:
        """Stop the job after the batches that are being written are committed. Can be called from a signal handler."""
        self._stop.set()

    def _run_table(self, job: TableJob) -> IngestResult:
        ingestion = TableIngestion(job, self._environment, self._spark)
        try:
            self._repeat(ingestion)
        except HudiError as error:
            _LOG.error("%s: the ingestion ended: %s", job.path, error)
            return replace(ingestion.result, error=error)
        finally:
            ingestion.close()
        return ingestion.result

    def _repeat(self, ingestion: TableIngestion) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                has_more = ingestion.step()
                failures = 0
            except (StorageUnavailable, WriteConflict, EngineFailed) as error:
                failures += 1
                if failures > self._config.retries:
                    raise
                pause_s = min(self._config.retry_seconds * 2 ** (failures - 1), _MAX_PAUSE_S)
                _LOG.warning("%s; retry %d of %d in %g seconds", error, failures, self._config.retries, pause_s)
                self._stop.wait(pause_s)
                continue
            if not has_more:
                if not self._config.continuous:
                    return
                self._stop.wait(self._config.poll_seconds)
