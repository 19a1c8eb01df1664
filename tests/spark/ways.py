"""The ways that a small write on Spark may go; by its options alone what these tests write would all be taken to the driver."""

from __future__ import annotations

import pytest

from pyhudi.engines.spark import engine, incoming, taken


def go(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """From here on rows are taken to the "driver", or there and worked on by "tasks", or stay on the cluster, where the driver
    asks for "few keys" or joins find "many keys".
    """
    if way == "tasks":
        monkeypatch.setattr(taken, "fits_here", lambda *_: False)
    elif way != "driver":
        monkeypatch.setattr(engine, "rows_for_driver", lambda *_: None)
    if way == "many keys":
        monkeypatch.setattr(incoming, "FEW_KEYS", -1)
