"""Tables that an enemy has written: `python -m tests.simulation.attack.hostile.run` runs any number of cases."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.attack.hostile.guard import environment_of_child
from tests.simulation.attack.hostile.run import attack, prepare

CASES = 1_500
PARTS = 25


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    assert prepare(folder) > 2_000
    return folder


@pytest.mark.parametrize(
    "part", ["a sample", *(pytest.param(f"others {number}", marks=pytest.mark.full) for number in range(1, 5))]
)
def test_hostile_tables_reach_nothing_outside_and_fail_with_an_error_of_their_own(tables: Path, part: str) -> None:
    share = 0 if part == "a sample" else int(part.split()[1])
    every = (
        range(0, CASES, PARTS)
        if share == 0
        else [number for number in range(CASES) if number % PARTS and number % 4 == share - 1]
    )
    outcomes = list(attack(tables, 1, every))
    assert [outcome.number for outcome in outcomes] == list(every)
    assert [outcome for outcome in outcomes if outcome.wrong] == []
    results = {outcome.result for outcome in outcomes}
    assert {"done", "exit code 0"} < results
    assert any(result[0].isupper() for result in results), "no case is refused"


_ACTS = {
    "open": "open(outside / 'a').read()",
    "open without Python": "pa.OSFile(str(outside / 'a'), 'rb').read()",
    "list": "os.listdir(outside)",
    "write": "(outside / 'b').write_text('x')",
    "write next to the table": "(inside / '..' / 'c').write_text('x')",
    "delete through a link": "os.symlink(outside, inside / 'link'), os.remove(inside / 'link' / 'a')",
    "make a folder": "os.mkdir(outside / 'd')",
    "time": "os.utime(outside / 'a')",
    "connect": "socket.create_connection(('127.0.0.1', 9))",
    "look a host up": "socket.getaddrinfo('example.org', 80)",
    "start a program": "subprocess.run(['true'])",
    "import": "__import__('hostile_module')",
    "visit without end": "[os.listdir(inside) for _ in range(60_000)]",
}

_PROGRAM = """
import json, os, socket, subprocess, sys
from pathlib import Path
import pyarrow as pa
from tests.simulation.attack.hostile.guard import EndlessWork, Guard
inside, outside, acts = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
guard = Guard((inside,), (outside,))
guard.run(lambda: (inside / 'a').write_text('x') and (inside / 'a').read_text(), follows_links=False)
reported = {"within the table": guard.violations}
for name, text in acts.items():
    def act():
        try:
            exec(text)
        except (OSError, ImportError):
            pass
    try:
        guard.run(act, follows_links=False)
    except EndlessWork:
        guard.violations.append("endless")
    reported[name] = guard.violations
print(json.dumps(reported))
"""


def test_guard_reports_each_way_out_of_the_table(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "a").write_text("secret")
    arguments = [sys.executable, "-c", _PROGRAM, str(inside), str(outside), json.dumps(_ACTS)]
    process = subprocess.run(arguments, env=environment_of_child(tmp_path), capture_output=True, text=True, check=True)
    reported = json.loads(process.stdout)
    assert reported.pop("within the table") == []
    assert [name for name, violations in reported.items() if not violations] == []
    assert list(reported) == list(_ACTS)
