"""Airflow operators and a sensor for Apache Hudi tables.

    from pyhudi_airflow import HudiServiceOperator, HudiWriteOperator, NewCommitSensor

Credentials come from an Airflow connection: its extra field holds the storage options, as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator

import pyhudi as hp

__all__ = ["HudiServiceOperator", "HudiWriteOperator", "NewCommitSensor"]

_SERVICES = ("compact", "cluster", "clean", "archive", "validate")


def _storage_options(connection: str | None) -> Mapping[str, str] | None:
    return None if connection is None else {str(k): str(v) for k, v in BaseHook.get_connection(connection).extra_dejson.items()}


class HudiWriteOperator(BaseOperator):
    """Writes the rows that a function returns to a table, once for each run of the task.

    A retry of a run whose write is committed writes nothing.

    Args:
        path: Path or URI of the table; a template.
        rows: Called with Airflow's context; returns an Arrow table, a frame or anything with the Arrow interface.
        mode: As in `pyhudi.write`.
        connection: Airflow connection with the storage options.
        arguments: Further arguments of `pyhudi.write`, such as `record_key`.
    """

    template_fields: Sequence[str] = ("path",)

    def __init__(
        self,
        *,
        path: str,
        rows: Callable[[Any], Any],
        mode: str | None = None,
        connection: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        **operator: Any,
    ) -> None:
        super().__init__(**operator)
        self.path, self.rows, self.mode, self.connection, self.arguments = path, rows, mode, connection, dict(arguments or {})

    def execute(self, context: Any) -> str | None:
        """Return the instant of the write, None if the run had written before."""
        application = f"airflow/{self.dag_id}/{self.task_id}/{context['run_id']}"
        result = hp.write(
            self.path,
            self.rows(context),
            self.mode,
            once=(application, 1),
            storage_options=_storage_options(self.connection),
            **self.arguments,
        )
        return None if result.instant is None else str(result.instant)


class HudiServiceOperator(BaseOperator):
    """Runs a table service: compact, cluster, clean, archive or validate.

    Args:
        path: Path or URI of the table; a template.
        service: Name of the method of `pyhudi.Table`.
        connection: Airflow connection with the storage options.
        arguments: Arguments of the method.
    """

    template_fields: Sequence[str] = ("path",)

    def __init__(
        self,
        *,
        path: str,
        service: str,
        connection: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        **operator: Any,
    ) -> None:
        super().__init__(**operator)
        if service not in _SERVICES:
            raise hp.InvalidRequest(f"service {service!r} is none of {', '.join(_SERVICES)}")
        self.path, self.service, self.connection, self.arguments = path, service, connection, dict(arguments or {})

    def execute(self, context: Any) -> str:
        """Return the result as text. A table that `validate` finds damaged fails the task."""
        table = hp.Table(self.path, _storage_options(self.connection))
        result = getattr(table, self.service)(**self.arguments)
        if self.service == "validate" and not result.ok:
            raise hp.CorruptData(f"{self.path}: {result}")
        return str(result)


class NewCommitSensor(BaseSensorOperator):
    """Waits until a table has a commit that completed after a time.

    Args:
        path: Path or URI of the table; a template.
        after: Instant or completion time, for example the value that an earlier task returned; a template.
        connection: Airflow connection with the storage options.
    """

    template_fields: Sequence[str] = ("path", "after")

    def __init__(self, *, path: str, after: str, connection: str | None = None, **operator: Any) -> None:
        super().__init__(**operator)
        self.path, self.after, self.connection = path, after, connection

    def poke(self, context: Any) -> bool:
        """True if there is such a commit."""
        try:
            table = hp.Table(self.path, _storage_options(self.connection))
        except hp.TableNotFound:
            return False
        times = table.inspect.commits()["completion_time"].to_pylist()
        return any(time is not None and time > self.after for time in times)
