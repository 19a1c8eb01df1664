"""Options of pre-commit validators."""

from __future__ import annotations

from pyhudi.options.declaration import Option

VALIDATORS = Option(
    "hoodie.precommit.validators",
    str,
    None,
    "validators that check a write or a clustering before it is published, separated by commas: Hudi's three SQL validators "
    "and names registered with `pyhudi.register_validator`",
)
EQUALITY_QUERIES = Option(
    "hoodie.precommit.validators.equality.sql.queries",
    str,
    None,
    "queries that must return the same rows before and after, separated by semicolons; `<TABLE_NAME>` is the placeholder "
    "of the rows",
)
INEQUALITY_QUERIES = Option(
    "hoodie.precommit.validators.inequality.sql.queries",
    str,
    None,
    "queries that must not return the same rows before and after, separated by semicolons",
)
SINGLE_VALUE_QUERIES = Option(
    "hoodie.precommit.validators.single.value.sql.queries",
    str,
    None,
    "queries that must return one value after the write, each as `query#value`, separated by semicolons",
)
FAILURE_POLICY = Option(
    "hoodie.precommit.validators.failure.policy",
    ("FAIL", "WARN_LOG"),
    "FAIL",
    "a rejected commit fails, or is published with a warning in the log (Hudi 1.2.0)",
)
VALIDATED_ROWS = Option(
    "pyhudi.precommit.validators.rows",
    ("changed_partitions", "table"),
    "changed_partitions",
    "rows that validators read: of the partitions that the write changes, as in Hudi, or of the whole table",
)
