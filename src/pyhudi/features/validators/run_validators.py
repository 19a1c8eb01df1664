"""Run the validators of one commit, on the state with the write applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyhudi.api.scan import Scan
from pyhudi.engines.arrow.input_rows import arrow_reader
from pyhudi.errors import HudiError, InvalidRequest, ValidationFailed, get_logger
from pyhudi.features.validators.applied_state import changed_partitions, state_query, states_around
from pyhudi.features.validators.sql_validators import (
    MAX_ROWS,
    SqlQuery,
    SqlValidator,
    find_sql_validator,
    opened_states,
    sql_validator_names,
)
from pyhudi.features.validators.validator import Validator, find_validator, unknown_validator
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.operations.commit.precommit_checks import ValidatorSettings
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.options.validator_options import EQUALITY_QUERIES, INEQUALITY_QUERIES, SINGLE_VALUE_QUERIES, VALIDATORS
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import Engine

_LOG = get_logger("pyhudi.features.validators")


def check_settings(settings: ValidatorSettings) -> None:
    """Check the validators before anything is written.

    Raises:
        InvalidRequest: A name is unknown, a query is malformed, or queries are set without their validator.
    """
    _resolve(settings)
    named = {validator.option for name in settings.names if (validator := find_sql_validator(name)) is not None}
    for option, text in _queries(settings).items():
        if text and option not in {str(used) for used in named}:
            raise InvalidRequest(f"option {option} has no effect: {VALIDATORS} does not name its validator")


def validate_commit(
    settings: ValidatorSettings, engine: Engine | None, transaction: Transaction, metadata: CommitMetadata, timeline: Timeline
) -> None:
    """Run the validators on the table as the commit would leave it.

    Args:
        engine: Runs their queries, None in this process.
        transaction: The transaction of the commit, whose data files exist.
        metadata: What it will publish.
        timeline: The timeline that it would be published on.

    Raises:
        ValidationFailed: A validator rejects the commit.
    """
    snapshots = states_around(transaction, metadata, timeline)
    if snapshots[1].schema is None:
        return
    partitions = None if settings.rows == "table" else changed_partitions(metadata)
    before, after = (Scan(state_query(snapshot, partitions)) for snapshot in snapshots)
    snapshots[0].check_not_stale()
    what = f"{transaction.action} {transaction.instant_time} of {transaction.context.storage.uri}"
    for name, validator in _resolve(settings).items():
        try:
            if isinstance(validator, Validator):
                _call(validator, before, after)
            else:
                _run_queries(*validator, engine, before, after)
        except ValidationFailed as failure:
            rejection = failure.of_commit(name, what, is_published=settings.warns)
            if not settings.warns:
                raise rejection from failure.__cause__
            _LOG.warning("%s", rejection)


def _resolve(settings: ValidatorSettings) -> Mapping[str, Validator | tuple[SqlValidator, tuple[SqlQuery, ...]]]:
    resolved: dict[str, Validator | tuple[SqlValidator, tuple[SqlQuery, ...]]] = {}
    texts = _queries(settings)
    for name in settings.names:
        sql_validator, registered = find_sql_validator(name), find_validator(name)
        if sql_validator is not None:
            resolved[name] = sql_validator, sql_validator.parse(texts[str(sql_validator.option)], name)
        elif registered is not None:
            resolved[name] = registered
        else:
            raise unknown_validator(name, sql_validator_names())
    return resolved


def _queries(settings: ValidatorSettings) -> dict[str, str | None]:
    return {
        str(EQUALITY_QUERIES): settings.equality,
        str(INEQUALITY_QUERIES): settings.inequality,
        str(SINGLE_VALUE_QUERIES): settings.single_value,
    }


def _run_queries(
    validator: SqlValidator, queries: tuple[SqlQuery, ...], engine: Engine | None, before: Scan, after: Scan
) -> None:
    with opened_states(engine, before, after) as (select, before_name, after_name):
        for query in queries:
            try:
                validator.check(query, select, before_name, after_name)
            except InvalidRequest as error:
                if isinstance(error, ValidationFailed):
                    raise
                raise ValidationFailed(f"query {query.text!r} failed: {error}", query=query.text) from error


def _call(validator: Validator, before: Scan, after: Scan) -> None:
    """Call a validator in Python. Raises ValidationFailed unless it accepts the write."""
    try:
        answer = validator.function(before, after)
        if answer is None or answer is True:
            return
        rows = () if answer is False else _first_rows(answer)
    except ValidationFailed:
        raise
    except HudiError as error:
        raise ValidationFailed(f"it failed: {error}") from error
    except Exception as error:
        raise ValidationFailed(f"it raised {type(error).__name__}: {error}") from error
    if answer is False or rows:
        raise ValidationFailed("it rejects the rows after the write", rows=rows)


def _first_rows(answer: Any) -> tuple[dict[str, Any], ...]:
    if hasattr(answer, "toArrow"):
        answer = answer.limit(MAX_ROWS).toArrow()
    rows: list[dict[str, Any]] = []
    for batch in arrow_reader(answer):
        rows += batch.slice(0, MAX_ROWS - len(rows)).to_pylist()
        if len(rows) == MAX_ROWS:
            break
    return tuple(rows)
