"""Progress bars: on a terminal, after a while, removed at the end; nothing elsewhere."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.tasks import progress
from pyhudi.tasks.progress import TerminalReporter, set_reporter, show_stage, stage, stage_name


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Recorder:
    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []

    def begin(self, name: str) -> Callable[[int, int], None]:
        return lambda done, total: self.seen.append((name, done, total))


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder()
    set_reporter(made)
    yield made
    progress._is_chosen = False


def test_progress_bar_appears_after_a_delay_and_disappears() -> None:
    now = [0.0]
    terminal = Terminal()
    show = TerminalReporter(terminal, lambda: now[0]).begin("write")
    show(1, 4)
    assert terminal.getvalue() == ""
    now[0] = 2.0
    show(2, 4)
    assert "write [###############---------------] 2/4 2 s" in terminal.getvalue()
    drawn = terminal.getvalue()
    now[0] = 2.01
    show(3, 4)
    assert terminal.getvalue() == drawn, "a bar is not drawn for each of many quick tasks"
    show(-1, 0)
    assert terminal.getvalue().endswith("\r\x1b[2K")


def test_short_work_draws_nothing() -> None:
    terminal = Terminal()
    show = TerminalReporter(terminal, lambda: 0.0).begin("write")
    show(1, 2)
    show(-1, 0)
    assert terminal.getvalue() == ""


def test_a_terminal_that_went_away() -> None:
    terminal = Terminal()
    now = [0.0]
    show = TerminalReporter(terminal, lambda: now[0]).begin("write")
    now[0] = 5.0
    terminal.close()
    show(1, 2)
    show(-1, 0)


@pytest.mark.parametrize(
    ("stream", "setting", "draws"), [(Terminal(), "", True), (Terminal(), "off", False), (io.StringIO(), "", False)]
)
def test_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, setting: str, draws: bool) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("PYHUDI_PROGRESS", setting)
    with show_stage("x") as show:
        assert (show is not None) is draws


def run_double(number: int) -> int:
    return 2 * number


def test_tasks_of_the_embedded_engine_are_counted(recorder: Recorder) -> None:
    assert LocalEngine(2).map(run_double, range(5)) == [0, 2, 4, 6, 8]
    assert sorted(recorder.seen[:-1]) == [("double", done, 5) for done in range(1, 6)]
    assert recorder.seen[-1] == ("double", -1, 0)
    recorder.seen.clear()
    assert LocalEngine(2).map(run_double, [1]) == [2]
    assert recorder.seen == [], "one task is no stage"


def test_a_stage_ends_when_its_work_fails(recorder: Recorder) -> None:
    with pytest.raises(ValueError), stage("x", 3) as advance:
        advance()
        raise ValueError
    assert recorder.seen == [("x", 1, 3), ("x", -1, 0)]


def test_names() -> None:
    assert stage_name(run_double) == "double"
    assert stage_name(lambda: None) == "tasks"
