"""Fixtures of the Spark tests; `spark` is one session per run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.moto_server import running_s3_server
from tests.support.spark_key_lookup import go
from tests.support.spark_session import spark as spark


@pytest.fixture(scope="session")
def aws_endpoint() -> Iterator[str]:
    """S3 and Glue as moto serves them."""
    pytest.importorskip("boto3")
    with running_s3_server() as endpoint:
        yield endpoint


@pytest.fixture(params=["driver", "many keys", *(pytest.param(way, marks=pytest.mark.wide) for way in ("tasks", "few keys"))])
def lookups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The ways to find keys; the ordinary run has the two that differ most."""
    go(monkeypatch, request.param)
    return str(request.param)
