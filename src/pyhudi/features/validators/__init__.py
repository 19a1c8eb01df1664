"""Pre-commit validators: a write is published only if its validators accept the table with the write applied.

validator          validators by name: functions of Python, and Hudi's three SQL validators
sql_validators     the SQL validators as queries of the state before and the state after
applied_state      the snapshot of a table with a commit applied that is not published yet
run_validators     runs the validators of one commit
"""

from __future__ import annotations

from pyhudi.features import exports

_EXPORTS = {
    "Validator": "validator",
    "check_settings": "run_validators",
    "register_validator": "validator",
    "validate_commit": "run_validators",
}
__getattr__ = exports(__name__, _EXPORTS)
