"""Plots of table health."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import pyhudi as hp

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OPTIONS = {"hoodie.index.bloom.num_entries": "100"}


@pytest.fixture
def table(tmp_path: Path) -> hp.Table:
    made = hp.Table.create(tmp_path / "t", name="trips", record_key="id", partition_by="city", ordering="ts", options=OPTIONS)
    made.upsert(pa.table({"id": ["a", "b", "c"], "city": ["sf", "ny", "sf"], "ts": [1, 1, 1]}), options=OPTIONS)
    made.upsert(pa.table({"id": ["a"], "city": ["sf"], "ts": [2]}), options=OPTIONS)
    return made


@pytest.fixture
def drawing() -> Any:
    matplotlib = pytest.importorskip("matplotlib", reason='pictures need matplotlib: pip install "pyhudi[plot]"')
    matplotlib.use("Agg")
    yield
    matplotlib.pyplot.close("all")


def save(axes: Axes, path: Path) -> None:
    from matplotlib.figure import Figure

    assert isinstance(axes.figure, Figure)
    axes.figure.savefig(path)


def test_every_picture_is_drawn(table: hp.Table, drawing: None, tmp_path: Path) -> None:
    from matplotlib.patches import Rectangle

    sizes = table.plot.sizes()
    assert sum(bar.get_height() for bar in sizes.patches if isinstance(bar, Rectangle)) == 2
    timeline = table.plot.timeline()
    assert [tick.get_text() for tick in timeline.get_yticklabels()] == ["writes"] and len(timeline.patches) == 2
    assert table.plot.amplification().get_title() == "trips: 1.2 rows written for each row changed"
    storage = table.plot.storage()
    assert {tick.get_text() for tick in storage.get_yticklabels()} == {"sf", "ny"}
    save(storage, tmp_path / "storage.png")
    assert table.plot.sizes(storage) is storage


def test_a_table_without_a_write_can_be_drawn(tmp_path: Path, drawing: None) -> None:
    empty = hp.Table.create(tmp_path / "empty", name="t", record_key="id")
    for draw in (empty.plot.sizes, empty.plot.storage, empty.plot.timeline, empty.plot.amplification):
        save(draw(), tmp_path / "empty.png")


def test_error_without_matplotlib_names_the_extra(table: hp.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(hp.InvalidRequest, match=r"pip install \"pyhudi\[plot\]\""):
        table.plot.sizes()
