"""Pre-commit validators: settings, and the check of a commit before it is published.

The implementation is `features.validators`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pyhudi import features
from pyhudi.errors import InvalidRequest
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.options import validator_options
from pyhudi.options.declaration import Option, Options, read_settings
from pyhudi.options.validator_options import VALIDATED_ROWS, VALIDATORS
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import Engine


@dataclass(frozen=True, slots=True)
class ValidatorSettings:
    """Settings of pre-commit validators.

    Attributes:
        names: Class names of Hudi's validators, and names of registered ones.
        equality: Text of the queries of the equality validator.
        inequality: Text of the queries of the inequality validator.
        single_value: Text of the queries of the single result validator.
        rows: Which rows validators read, see the option.
        warns: A rejected commit is published with a warning.
    """

    names: Annotated[tuple[str, ...], VALIDATORS]
    equality: Annotated[str | None, validator_options.EQUALITY_QUERIES]
    inequality: Annotated[str | None, validator_options.INEQUALITY_QUERIES]
    single_value: Annotated[str | None, validator_options.SINGLE_VALUE_QUERIES]
    rows: Annotated[str, VALIDATED_ROWS]
    warns: Annotated[bool, validator_options.FAILURE_POLICY]

    @classmethod
    def of(cls, options: Options) -> ValidatorSettings | None:
        """Build the settings from checked options; None without validators.

        Raises:
            InvalidRequest: Queries without a validator, a name that is unknown, or a malformed query.
            Unsupported: This installation has no validators.
        """
        settings = read_settings(cls, options, warns=options.value_or_default(validator_options.FAILURE_POLICY) == "WARN_LOG")
        if not settings.names:
            unused = [str(option) for option in _QUERIES if options.text(option) is not None]
            if unused:
                raise InvalidRequest(f"option {unused[0]} has no effect without {VALIDATORS}: name the validator")
            return None
        features.load("validators", f"option {VALIDATORS}").check_settings(settings)
        return settings


_QUERIES: tuple[Option, ...] = (
    validator_options.EQUALITY_QUERIES,
    validator_options.INEQUALITY_QUERIES,
    validator_options.SINGLE_VALUE_QUERIES,
)


def precommit_check(
    settings: ValidatorSettings | None, engine: Engine | None, transaction: Transaction, metadata: CommitMetadata
) -> Callable[[Timeline], None] | None:
    """Return the check of a commit against a timeline, see `PlannedCommit.validate`; None without validators.

    Args:
        engine: Runs the queries; None uses threads of this process.
        transaction: The transaction of the commit.
        metadata: What it will publish.
    """
    if settings is None:
        return None
    validate = features.load("validators", f"option {VALIDATORS}").validate_commit
    return lambda timeline: validate(settings, engine, transaction, metadata, timeline)
