"""Tables that an enemy has written: each case changes one field, name or link of a table, and runs one operation on it.

    python -m tests.simulation.attack.hostile.run --seed 7 --count 100000 [--fields timeline] [--operations upsert]

Nothing outside of the table may be read, changed or contacted, memory and visited files are limited, and the operation returns or
raises a HudiError. Cases run in processes of their own, many in each. What is wrong is printed with the seed and the number
of the case, which make it again: `--first 17 --count 1`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import reprlib
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

from pyhudi.format.properties import format_properties, parse_properties
from pyhudi.options.declaration import REGISTRY
from tests.simulation.attack.hostile import subjects
from tests.simulation.attack.hostile.documents import JSON, Document, Field, changed, documents, fields, substituted
from tests.simulation.attack.hostile.guard import EndlessWork, Guard, environment_of_child
from tests.simulation.attack.hostile.operations import COMMANDS, FOLLOWING, LINKS_REFUSED, OPERATIONS, OtherRows
from tests.simulation.attack.hostile.operations import run as run_operation
from tests.simulation.attack.hostile.payloads import CONTROL, MARKUP, MODULE, payloads

MEMORY_BYTES = 1 << 30
"""Memory that a process may take in addition to what it has before its first case."""
PROCESSOR_SECONDS = 60
"""After so much processor time a case is endless: the last resort, for a loop that opens no file."""
WAIT_SECONDS = 600
_ROOT = Path(__file__).resolve().parents[4]
_MOST_PLACES = 6
_MOST_LIES, _MORE_LIES = 4, 0.4
_LINKS = "link"
_NAMES = "name"
_OPTION = "stored option"
_EVERYWHERE = "everywhere"
_WEIGHTS = {_LINKS: 25.0, _NAMES: 15.0, _OPTION: 15.0, _EVERYWHERE: 60.0}


@dataclass(frozen=True)
class Target:
    """What a case changes. places: (state, file) that have such a field."""

    kind: str
    name: str
    places: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Outcome:
    """What a case came to. wrong: empty, or what is wrong."""

    number: int
    case: str
    result: str
    wrong: str = ""


def collapsed(field: Field) -> str:
    """Name of a field without the places in a schema that is stored as text."""
    name = field.name
    if JSON not in field.steps:
        return name
    before = ".".join("*" if isinstance(step, int) else step for step in field.steps[: field.steps.index(JSON) + 1])
    return f"{before}..{name.rpartition('.')[2]}"


def targets(folder: Path) -> list[Target]:
    """Every field of every kind of file, and the links and names that can be made."""
    found: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
    ignored: set[tuple[str, str]] = set()
    for state in subjects.STATES:
        for path, data in subjects.content(state_folder(folder, state)).items():
            found.setdefault((_LINKS, path_kind(path)), {})[state, path] = None
            found.setdefault((_NAMES, path_kind(path)), {})[state, path] = None
            for document in documents(path, data):
                for field in fields(document.tree):
                    key = document.kind, collapsed(field)
                    if key in ignored:
                        continue
                    if key not in found and field.is_key and not is_stored(document, field):
                        ignored.add(key)
                        continue
                    places = found.setdefault(key, {})
                    if len(places) < _MOST_PLACES:
                        places[state, path] = None
        for text, description in _texts_of_paths(folder, state):
            found.setdefault((_EVERYWHERE, description), {})[state, text] = None
    for state in subjects.STATES:
        for name, option in REGISTRY.items():
            if option.origin == "caller":
                found.setdefault((_OPTION, name), {})[state, ".hoodie/hoodie.properties"] = None
    return [Target(kind, name, tuple(places)) for (kind, name), places in found.items()]


def _texts_of_paths(folder: Path, state: str) -> Iterator[tuple[str, str]]:
    """Texts that several files of a table hold: (text, what it is)."""
    for text in ("rome", "oslo", "note", "v", "id", "ts", "city", "inside", "record_index", "files", "column_stats"):
        yield text, text
    for path in subjects.content(state_folder(folder, state)):
        name = path.rpartition("/")[2]
        if name.endswith(".parquet") or ".log." in name:
            yield name, "name of a data file"
        elif ".hoodie/timeline/" in path and name[:17].isdigit():
            yield name[:17], "instant"
            if "_" in name:
                yield name[18:35], "completion time"


def is_stored(document: Document, key: Field) -> bool:
    """Whether the file stores this key. The names of an Avro record's fields are in its schema."""
    try:
        return document.encode(changed(document.tree, key, f"{key.value}x")) != document.encode(document.tree)
    except Exception:
        return False


def path_kind(path: str) -> str:
    """A path without what differs between files of a kind."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{''.join(letter for letter in name if not letter.isdigit())[-24:]}"


def state_folder(folder: Path, state: str) -> Path:
    return folder / state.replace(" ", "-") / "table"


class Attacker:
    """Makes hostile tables.

    Args:
        folder: What `prepare` has stored.
        work: Folder for the table, and for the table outside of it.
    """

    def __init__(self, folder: Path, work: Path, seed: int) -> None:
        self.folder, self.work, self.seed = folder, work, seed
        self.table, self.outside = work / "place" / "table", work / "place" / "outside"
        self.private = work / "private"
        self.state = ""
        self.content: dict[str, bytes] = {}
        self.kinds: dict[str, dict[str, Target]] = {}
        for item in json.loads((folder / "targets.json").read_text()):
            target = Target(**item)
            self.kinds.setdefault(target.kind, {})[target.name] = target
        # A kind with many fields is attacked more often, but not in proportion.
        self.weights = [_WEIGHTS.get(kind, len(named) ** 0.5) for kind, named in self.kinds.items()]
        # One folder holds what lies outside of every state, so that one watch covers it.
        for state in subjects.STATES:
            shutil.copytree(state_folder(folder, state).with_name("outside"), self.outside, dirs_exist_ok=True)
        self.private.mkdir()
        (self.private / "key").write_text(subjects.SECRET)

    def change(self, chance: random.Random) -> tuple[str, bool]:
        """Make a hostile table. Returns what was done, and whether the table has a link."""
        target = self._target(chance)
        state, path = chance.choice([tuple(place) for place in target.places])
        self._restore(state)
        labels = [self._attack(chance, target, path)]
        # Lies that agree reach further than one alone.
        while len(labels) < _MOST_LIES and chance.random() < _MORE_LIES:
            other = self._target(chance)
            others = [place for place in other.places if place[0] == state]
            if others and other.kind != _LINKS and target.kind != _LINKS:
                labels.append(self._attack(chance, other, chance.choice(others)[1]))
        return f"{state}: {'; '.join(labels)}", target.kind == _LINKS

    def _target(self, chance: random.Random) -> Target:
        (named,) = chance.choices(list(self.kinds.values()), self.weights)
        return chance.choice(list(named.values()))

    def _restore(self, state: str) -> None:
        if state != self.state:
            self.content = subjects.content(state_folder(self.folder, state))
            self.state = state
        if self.table.is_symlink():
            self.table.unlink()
        shutil.rmtree(self.table, ignore_errors=True)
        made: set[Path] = set()
        for path, data in self.content.items():
            file = self.table / path
            if file.parent not in made:
                file.parent.mkdir(parents=True, exist_ok=True)
                made.add(file.parent)
            file.write_bytes(data)

    def _attack(self, chance: random.Random, target: Target, path: str) -> str:
        """Change the table. Returns what was done."""
        return f"{target.kind} {target.name} in {path}: {self._change(chance, target, path)}"

    def _change(self, chance: random.Random, target: Target, path: str) -> str:
        if target.kind != _EVERYWHERE and not (self.table / path).is_file():
            return "renamed"
        if target.kind == _LINKS:
            return self._link(chance, path)
        if target.kind == _NAMES:
            return self._rename(chance, path)
        if target.kind == _EVERYWHERE:
            return self._substitute(chance, path)
        if target.kind == _OPTION:
            return self._store_option(chance, target.name, path)
        for document in documents(path, (self.table / path).read_bytes()):
            if document.kind != target.kind:
                continue
            fitting = [field for field in fields(document.tree) if collapsed(field) == target.name]
            if not fitting:
                continue
            field = chance.choice(fitting)
            attacks = list(payloads(field.value, self.outside, is_key=field.is_key))
            chance.shuffle(attacks)
            # Not every value can be stored in every field: the next one is.
            for kind, value in attacks:
                try:
                    hostile = document.encode(changed(document.tree, field, value))
                except Exception:
                    continue
                (self.table / path).write_bytes(hostile)
                return f"{kind} {reprlib.repr(value)}"
        return "nothing"

    def _substitute(self, chance: random.Random, old: str) -> str:
        """Replace a text in all files in which it occurs, or in those of one kind."""
        kind, new = chance.choice(list(payloads(old, self.outside, is_key=True)))
        part = chance.choice(("", "", ".hoodie/timeline", ".hoodie/metadata", ".hoodie/metadata/files"))
        for path, data in self.content.items():
            if not path.startswith(part) or (old.encode() not in data and not path.endswith("hfile")):
                continue
            for document in documents(path, data):
                tree = substituted(document.tree, old, new)
                if tree != document.tree:
                    with contextlib.suppress(Exception):
                        (self.table / path).write_bytes(document.encode(tree))
        return f"{kind} {reprlib.repr(new)} for {old} below {part or '.'}"

    def _store_option(self, chance: random.Random, key: str, path: str) -> str:
        kind, value = chance.choice([*payloads("text", self.outside, is_key=True), ("true", "true"), ("number", "1")])
        properties = {**parse_properties((self.table / path).read_bytes()), f"pyhudi.table.options.{key}": value}
        (self.table / path).write_bytes(format_properties(properties))
        return f"{kind} {reprlib.repr(value)}"

    def _link(self, chance: random.Random, path: str) -> str:
        """Replace a file, or one of the folders above it, with a link."""
        parts = path.split("/")
        chosen = self.table.joinpath(*parts[: chance.randint(1, len(parts))])
        twin = self.outside / chosen.relative_to(self.table)
        goal = chance.choice((twin, twin, twin, chosen, self.outside, self.private, Path(os.path.relpath(twin, chosen.parent))))
        if chosen.is_dir():
            shutil.rmtree(chosen)
        else:
            chosen.unlink()
        chosen.symlink_to(goal)
        return f"{chosen.relative_to(self.table)} -> {goal}"

    def _rename(self, chance: random.Random, path: str) -> str:
        """Give a file or a folder another name, or add one."""
        parts = path.split("/")
        chosen = self.table.joinpath(*parts[: chance.randint(1, len(parts))])
        old = chosen.name
        name = chance.choice(
            (
                old + MARKUP.replace("/", ""),
                old + CONTROL,
                CONTROL + old,
                "..%2Foutside",
                "x" * 250,
                old.upper(),
                "\u202e" + old,
                "9" * 200,
                old + "\n" + old,
                "-1" + old,
                old.replace("0", "9" * 30, 1)[:250],
                old.partition("_")[0] or "x",
                os.fsdecode(b"\xff\xfe") + old,
            )
        )
        target = chosen.with_name(name[:250])
        how = chance.choice(("rename", "copy"))
        if target.exists():
            return "nothing"
        if how == "rename":
            chosen.rename(target)
        elif chosen.is_dir():
            shutil.copytree(chosen, target)
        else:
            shutil.copyfile(chosen, target)
        return f"{how} {chosen.relative_to(self.table)} as {name!r}"


class Runner(Attacker):
    """Runs cases in this process, which it watches from now on."""

    def __init__(self, folder: Path, work: Path, seed: int) -> None:
        super().__init__(folder, work, seed)
        self.scratch = work / "scratch"
        self.before = _listing(self.outside)
        inside = (self.table, self.scratch, Path(os.environ["TMPDIR"]))
        self.guard = Guard(inside, (self.outside, self.private))

    def run(self, number: int) -> Outcome:
        chance = random.Random(f"{self.seed}-{number}")
        change, has_link = self.change(chance)
        following = FOLLOWING.get(self.state, ())
        is_bootstrapped = self.state == subjects.BOOTSTRAPPED
        every = list(OPERATIONS if chance.random() < 0.75 or is_bootstrapped else COMMANDS)
        operation = chance.choice(following if following and chance.random() < 0.5 else every)
        # By default reads follow links, as Hudi's do; with roots for links they do not.
        follows_links = has_link and not is_bootstrapped and (operation in COMMANDS or chance.random() < 0.5)
        storage_options = LINKS_REFUSED if has_link and not follows_links else {}
        if is_bootstrapped:
            storage_options = {"link_roots": str(subjects.source_folder(self.folder))}
        options = {"hoodie.metadata.enable": False} if chance.random() < 0.3 else {}
        case = f"{change}: {operation} {options or ''}"
        result = wrong = ""
        signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS)

        def act() -> None:
            nonlocal result, wrong
            try:
                result = run_operation(operation, self.table, self.scratch, storage_options, options)
            except OtherRows as error:
                result = type(error).__name__
                wrong = "" if follows_links else str(error)
            except (Exception, EndlessWork) as error:
                result = wrong = f"{type(error).__name__}: {error}"[:400] + _where(error)

        self.guard.run(act, follows_links=follows_links)
        signal.setitimer(signal.ITIMER_PROF, 0)
        if self.guard.violations:
            wrong = "; ".join([wrong, *self.guard.violations[:4]])
        after = _listing(self.outside)
        if after != self.before:
            wrong += f"; outside changed: {sorted(set(after.items()) ^ set(self.before.items()))[:4]}"
            self.before = after
        strange = sorted(set(os.listdir(self.work)) - {"place", "scratch", "private"}) + sorted(
            set(os.listdir(self.outside.parent)) - {"table", "outside"}
        )
        if strange:
            wrong += f"; new next to the table: {strange}"
        return Outcome(number, case, result, wrong)


def _where(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/pyhudi/" in frame.filename]
    return "".join(f" at {frame.filename.rpartition('/pyhudi/')[2]}:{frame.lineno}" for frame in frames[-2:])


def _listing(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for top, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            status = os.lstat(os.path.join(top, name))
            found[os.path.join(top, name)] = (status.st_size, status.st_mtime_ns)
    return found


def prepare(folder: Path) -> int:
    """Build the tables and their targets; returns the number of targets."""
    subjects.build(folder)
    found = targets(folder)
    (folder / "targets.json").write_text(json.dumps([asdict(target) for target in found]))
    return len(found)


def attack(folder: Path, seed: int, numbers: Iterable[int]) -> Iterator[Outcome]:
    """Run these cases in processes of their own; one that dies, or does not end, is replaced."""
    pending = list(numbers)
    while pending:
        work = Path(tempfile.mkdtemp(prefix="hostile-", dir=folder))
        home = work / "home"
        (home / "temp").mkdir(parents=True)
        modules = work / "modules"
        modules.mkdir()
        (modules / f"{MODULE}.py").write_text("class Attack: pass\n")
        command = [
            sys.executable,
            "-m",
            "tests.simulation.attack.hostile.run",
            "--child",
            str(folder),
            "--work",
            str(work / "tables"),
        ]
        variables = {**environment_of_child(home), "PYTHONPATH": os.pathsep.join([str(_ROOT), str(modules)])}
        process = subprocess.Popen(
            [*command, "--seed", str(seed), "--numbers", ",".join(map(str, pending))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=variables,
            cwd=modules,
        )
        assert process.stdout is not None and process.stderr is not None
        done = 0
        while select.select([process.stdout], [], [], WAIT_SECONDS)[0] and (line := process.stdout.readline()):
            done += 1
            yield Outcome(**json.loads(line))
        process.kill()
        errors = process.stderr.read()
        process.wait()
        process.stdout.close()
        process.stderr.close()
        shutil.rmtree(work)
        if done < len(pending):
            wrong = f"the process ended with {process.returncode}: {errors[-400:]}"
            yield Outcome(pending[done], "the case that was running", "died", wrong)
            done += 1
        pending = pending[done:]


def _child(folder: Path, work: Path, seed: int, numbers: list[int]) -> None:
    work.mkdir()
    out = os.fdopen(os.dup(1), "w")
    runner = Runner(folder, work, seed)
    # Threads that start later would take a stack each.
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    with open("/proc/self/statm") as file:
        limit = int(file.read().split()[0]) * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for number in numbers:
        out.write(json.dumps(asdict(runner.run(number))) + "\n")
        out.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description="Attack tables with what an enemy may write into them.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--count", type=int, default=1_500)
    parser.add_argument("--folder", default="", help="keep the tables in this new folder")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    parser.add_argument("--work", default="", help=argparse.SUPPRESS)
    parser.add_argument("--numbers", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        _child(Path(chosen.child), Path(chosen.work), chosen.seed, [int(number) for number in chosen.numbers.split(",")])
        return 0
    folder = Path(chosen.folder or tempfile.mkdtemp(prefix="hostile-"))
    seen: Counter[str] = Counter()
    wrong = 0
    try:
        if not (folder / "targets.json").exists():
            print(f"{prepare(folder)} targets")
        for outcome in attack(folder, chosen.seed, range(chosen.first, chosen.first + chosen.count)):
            seen["WRONG" if outcome.wrong else outcome.result] += 1
            if outcome.wrong:
                wrong += 1
                print(f"seed {chosen.seed}: {outcome.number}: {outcome.case}: {outcome.wrong}", flush=True)
    finally:
        if not chosen.folder:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"seed {chosen.seed}: {sum(seen.values())} cases, {wrong} wrong: {dict(seen.most_common())}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
