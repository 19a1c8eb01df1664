"""How a small write on Spark finds keys, where the default would collect all rows of these tests to the driver."""

from __future__ import annotations

import pytest

from pyhudi.engines.spark import driver_batch, engine, incoming


def go(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Force the path of every later write of a test.

    Args:
        monkeypatch: Undoes it at the end of the test.
        way: "driver" collects the rows there; "tasks" collects them, and tasks write them; "few keys" leaves them on the cluster
            and looks keys up in the driver; "many keys" leaves them on the cluster and looks keys up by joins.
    """
    if way == "tasks":
        monkeypatch.setattr(driver_batch, "fits_driver", lambda *_: False)
    elif way != "driver":
        monkeypatch.setattr(engine, "rows_for_driver", lambda *_: None)
    if way == "many keys":
        monkeypatch.setattr(incoming, "FEW_KEYS", -1)
