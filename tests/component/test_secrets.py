"""Secret option values appear in no message, listing or repr."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.api.doctor import diagnose
from pyhudi.errors import HudiError
from pyhudi.features import procedures
from pyhudi.format.properties import redact_secret
from pyhudi.options.supported import parse_options
from pyhudi.storage import open_storage
from pyhudi.table.table_config import store_table_config

_names = itertools.count()
VALUE = "hunter-two"
SECRETS = (
    "hoodie.aws.access.key",
    "hoodie.aws.secret.key",
    "hoodie.aws.session.token",
    "fs.s3a.secret.key",
    "fs.azure.account.key.mine.dfs.core.windows.net",
    "hoodie.datasource.hive_sync.password",
    "hoodie.datasource.hive_sync.pass",
    "ssl.keystore.Password",
    "client_secret",
    "sas_token",
    "google.credentials.json",
)
PLAIN = ("hoodie.datasource.write.recordkey.field", "hoodie.table.name", "hoodie.bypass.merge", "hoodie.keep.max.commits")


def table() -> Table:
    made = Table.create(f"memory://secrets-{next(_names)}", name="t", record_key="id")
    made.insert(pa.table({"id": [1]}))
    return made


def output_of(act: Callable[[], object]) -> str:
    """All output of a call: its warnings, its result, or its error with the cause."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            given = act()
            said = f"{given!r} {given}"
        except HudiError as error:
            said = f"{error!r} {error} {error.__cause__!r}"
    return said + "".join(str(one.message) for one in caught)


def test_names_of_secrets() -> None:
    assert all(redact_secret(key, VALUE) != VALUE for key in SECRETS)
    assert all(redact_secret(key, VALUE) == VALUE for key in PLAIN)
    assert redact_secret(SECRETS[0], "") == ""


@pytest.mark.parametrize("key", [key for key in SECRETS if "secret" in key or "password" in key])
def test_no_call_shows_secrets(key: str) -> None:
    made, given = table(), {key: VALUE}
    store_table_config(made.context.storage, given, made.context.env)
    calls: tuple[Callable[[], object], ...] = (
        lambda: parse_options(given),
        lambda: made.scan(options=given),
        lambda: made.clean(dry_run=True, options=given),
        lambda: made.upsert(pa.table({"id": [2]}), options=given),
        lambda: diagnose(made, given),
        lambda: open_storage(made.uri, given),
        lambda: open_storage("s3a://bucket/t", given),
        lambda: made.context.reloaded().config,
        lambda: procedures.call("show_table_properties", path=made.uri, limit=100).to_pylist(),
        lambda: procedures.call("run_clean", path=made.uri, options=f"{key}={VALUE}"),
        lambda: procedures.call("run_clean", path=made.uri, options=VALUE),
    )
    for number, call in enumerate(calls):
        assert VALUE not in output_of(call), f"call {number}"
    assert key in output_of(calls[8])
