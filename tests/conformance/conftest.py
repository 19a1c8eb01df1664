from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.moto_server import make_bucket, running_s3_server


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    with running_s3_server() as endpoint:
        make_bucket(endpoint, "tables")
        yield endpoint
