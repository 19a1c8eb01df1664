"""Diagnose the environment and the configuration and health of a table: `pyhudi doctor`, `diagnose`.

    packages       missing packages, and packages older than PyHudi requires
    workers        interpreter of Spark's Python workers: another Python version, or one without PyHudi
    java           Spark requires Java 17 or newer; the version is read from the `release` file, no JVM is started
    settings       options and table properties that contradict or disable one another
    services       overdue compaction, cleaning and archival; plans that no process executes
    state          dead writes that need a `repair`; abandoned locks
    writers        pairs of writers that lose rows or fail together, and writes whose rows are lost

Every finding has a remedy. Nothing is changed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyhudi.api.argument_types import checked
from pyhudi.api.table import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import HudiError
from pyhudi.features.consistent_hashing.resize_service import changes_hashing_metadata
from pyhudi.format.instants import Action, State, format_instant_time, timestamp_from_instant
from pyhudi.metadata_table.codecs.metadata_partitions import BLOOM_FILTERS, RECORD_INDEX
from pyhudi.operations.admin.repair import RepairKind, RepairSettings, run_repair
from pyhudi.operations.admin.stable_check import repeat_until_stable
from pyhudi.operations.admin.writer_pairs import find_writer_risks, load_writers
from pyhudi.operations.commit.action_liveness import is_action_dead
from pyhudi.operations.commit.check_writable import check_no_schema_on_read
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.services.archive import ArchiveSettings
from pyhudi.operations.services.clean import CleanSettings, preview_clean
from pyhudi.operations.services.compact import CompactSettings
from pyhudi.options.declaration import Options
from pyhudi.options.index_options import METADATA_TABLE
from pyhudi.options.service_options import CLEAN_COMMITS_RETAINED, COMPACT_INLINE, KEEP_MAX_COMMITS, KEEP_MIN_COMMITS
from pyhudi.options.supported import parse_options
from pyhudi.options.table_options import ORDERING
from pyhudi.options.write_options import CONCURRENCY, FAILED_WRITES, MAX_FILE_SIZE, METADATA_PREFIX, SMALL_FILE_LIMIT
from pyhudi.planning.archival import reason_not_to_archive
from pyhudi.planning.compaction import compaction_due
from pyhudi.records.html_repr import HtmlRepr
from pyhudi.records.merge_mode import MergeMode
from pyhudi.table.feature_support import check_open
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import SERVICE_ACTIONS

PACKAGES = {"pyarrow": (18,), "numpy": (1, 26), "pyroaring": (1, 0), "xxhash": (3, 4), "obstore": (0, 6)}
"""Minimum versions of required packages."""

OLDEST_PYSPARK = (4, 1)
OLDEST_JAVA = 17
HOUR_MS = 3_600_000
_WORKER_WAIT_S = 30.0

FINDINGS_SCHEMA = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("severity", "check", "finding", "remedy")])


class Severity(StrEnum):
    """Severity of a finding. error: an operation fails; warning: performance or reliability suffers."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem and its remedy.

    Attributes:
        severity: Error or warning.
        check: Name of the check: packages, workers, java, settings, services, state or writers.
        finding: Description of the problem.
        remedy: Command or change that solves it.
    """

    severity: Severity
    check: str
    finding: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Diagnosis(HtmlRepr):
    """Result of `diagnose`.

    Attributes:
        checks: Name and observed value of each check.
        findings: The findings.
    """

    checks: tuple[tuple[str, str], ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """True if there are no findings."""
        return not self.findings

    def to_arrow(self) -> pa.Table:
        """Return the findings as an Arrow table with text columns severity, check, finding, remedy."""
        return pa.Table.from_pylist([asdict(one) for one in self.findings], schema=FINDINGS_SCHEMA)

    def __str__(self) -> str:
        lines = [f"{name:<10}{seen}" for name, seen in self.checks]
        for one in self.findings:
            lines += [f"{one.severity.value:<8}{one.check}: {one.finding}", f"        remedy: {one.remedy}"]
        return "\n".join([*lines, "nothing found" if self.ok else f"{len(self.findings)} findings"])


@checked
def diagnose(table: Table | None = None, options: Mapping[str, object] | None = None) -> Diagnosis:
    """Diagnose this environment and, optionally, a table.

    Args:
        table: Table to diagnose; None checks the environment only.
        options: Options with which the table is written.

    Returns:
        The checks and their findings.
    """
    checks: list[tuple[str, str]] = []
    all_findings: list[Finding] = []
    for check in (_packages, _java, _workers):
        seen, findings = check()
        checks.append((check.__name__.lstrip("_"), seen))
        all_findings += findings
    if table is not None:
        parsed, findings = _parsed(options)
        all_findings += [*findings, *_of_table(table, parsed)]
        checks.append(("table", repr(table)))
        with suppress(HudiError):
            # `_writers` reports a commit that cannot be read.
            checks.append(("writers", str(load_writers(table.context, table.context.timeline.load()))))
    return Diagnosis(tuple(checks), tuple(all_findings))


def _packages() -> tuple[str, list[Finding]]:
    findings, seen = [], [f"Python {sys.version.split()[0]}"]
    needed = dict(PACKAGES)
    if _installed("pyspark") is not None:
        needed["pyspark"] = OLDEST_PYSPARK
    for name, oldest in needed.items():
        version = _installed(name)
        minimum = ".".join(map(str, oldest))
        if version is None:
            remedy = f'pip install "{name}>={minimum}"'
            findings.append(Finding(Severity.ERROR, "packages", f"{name} is not installed", remedy))
            continue
        seen.append(f"{name} {version}")
        if _numbers(version) < oldest:
            remedy = f'pip install "{name}>={minimum}"'
            findings.append(Finding(Severity.ERROR, "packages", f"{name} {version} is older than {minimum}", remedy))
    if "pyspark" in needed:
        version = _installed("pandas")
        if version is not None and _numbers(version) >= (3,):
            finding = f"pandas {version}: PySpark warns about 3 and newer"
            findings.append(Finding(Severity.WARNING, "packages", finding, 'pip install "pandas>=2.2,<3"'))
    return ", ".join(seen), findings


def _java() -> tuple[str, list[Finding]]:
    if _installed("pyspark") is None:
        return "not needed: PySpark is not installed", []
    remedy = f"install Java {OLDEST_JAVA} or newer, and set JAVA_HOME to it"
    home = os.environ.get("JAVA_HOME")
    if home is None:
        program = shutil.which("java")
        home = None if program is None else str(Path(program).resolve().parents[1])
    elif not Path(home, "bin", "java").exists():
        return f"JAVA_HOME={home}", [Finding(Severity.ERROR, "java", f"JAVA_HOME={home} has no bin/java", remedy)]
    if home is None:
        finding = "no Java was found: Spark does not start (Spark Connect and the embedded engine need none)"
        return "none", [Finding(Severity.ERROR, "java", finding, remedy)]
    version = java_version(Path(home))
    if version is None:
        return f"{home} of unknown version", []
    if version < OLDEST_JAVA:
        return f"Java {version}, {home}", [Finding(Severity.ERROR, "java", f"Java {version} is too old for PySpark", remedy)]
    return f"Java {version}, {home}", []


def java_version(home: Path) -> int | None:
    """Feature release of a Java installation, from its `release` file; None if the file does not contain it."""
    for folder in (home, home.parent):
        try:
            text = (folder / "release").read_text(errors="replace")
        except OSError:
            continue
        matched = re.search(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', text, re.MULTILINE)
        if matched is not None:
            return int(matched[2] or 0) if matched[1] == "1" else int(matched[1])
    return None


def _workers() -> tuple[str, list[Finding]]:
    if _installed("pyspark") is None:
        return "not needed: PySpark is not installed", []
    name = os.environ.get("PYSPARK_PYTHON") or "python3"
    program = shutil.which(name)
    remedy = f"export PYSPARK_PYTHON={sys.executable}, or install PyHudi where Spark's workers start"
    if program is None:
        finding = f"{name!r}, the interpreter of Spark's Python workers, does not exist"
        return name, [Finding(Severity.ERROR, "workers", finding, remedy)]
    if os.path.samefile(program, sys.executable) and os.path.abspath(program) == os.path.abspath(sys.executable):
        return f"{program}, this interpreter", []
    return f"{program}", worker_findings(program, remedy)


# Isolated mode ignores the working directory, whose files may be anyone's. Folders that Spark's workers also search are
# added after the standard library.
_VERSIONS_SCRIPT = """
import json, os, site, sys
from importlib import metadata
folders = os.environ.get("PYTHONPATH", "").split(os.pathsep) + [site.getusersitepackages()]
sys.path.extend(folder for folder in folders if os.path.isabs(folder))
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
try:
    import pyhudi
    ours = pyhudi.__version__
except ImportError:
    ours = None
print(json.dumps({"python": list(sys.version_info[:2]), "pyhudi": ours, **{n: version(n) for n in sys.argv[1:]}}))
"""


def worker_findings(program: str, remedy: str) -> list[Finding]:
    """Problems that prevent another interpreter from running tasks of this one."""
    names = ["pyarrow", "pyspark"]
    try:
        output = subprocess.run(
            [program, "-I", "-c", _VERSIONS_SCRIPT, *names], capture_output=True, text=True, timeout=_WORKER_WAIT_S, check=True
        ).stdout
        worker: dict[str, Any] = json.loads(output)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        finding = f"{program}, which Spark starts for its Python workers, does not run: {error}"
        return [Finding(Severity.ERROR, "workers", finding, remedy)]
    findings = []
    driver_python = list(sys.version_info[:2])
    if worker["python"] != driver_python:
        finding = (
            f"workers run Python {_dotted(worker['python'])} ({program}), the driver {_dotted(driver_python)}: Spark refuses that"
        )
        findings.append(Finding(Severity.ERROR, "workers", finding, remedy))
    if worker["pyhudi"] is None:
        finding = f"{program} has no PyHudi: tasks fail there, and format('pyhudi') is not found"
        findings.append(Finding(Severity.ERROR, "workers", finding, remedy))
    for name in names:
        if worker[name] is None:
            findings.append(Finding(Severity.ERROR, "workers", f"{program} has no {name}", remedy))
        elif worker[name] != _installed(name):
            finding = f"{name} is {worker[name]} in {program}, and {_installed(name)} here"
            findings.append(Finding(Severity.WARNING, "workers", finding, remedy))
    return findings


def _parsed(options: Mapping[str, object] | None) -> tuple[Options, list[Finding]]:
    """The valid options, and findings about the others."""
    valid: dict[str, object] = {}
    findings = []
    prefix = parse_options({key: value for key, value in (options or {}).items() if key == METADATA_PREFIX.key})
    for key, value in (options or {}).items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                parse_options({key: value}, base_options=prefix)
            except HudiError as error:
                findings.append(Finding(Severity.ERROR, "settings", str(error), f"remove {key}; see docs/reference/options.md"))
                continue
        for warning in caught:
            findings.append(Finding(Severity.WARNING, "settings", str(warning.message), f"correct {key} or leave it out"))
        valid[key] = value
    with warnings.catch_warnings():
        # Reported above, option by option.
        warnings.simplefilter("ignore")
        try:
            return parse_options(valid), findings
        except HudiError as error:
            findings.append(Finding(Severity.ERROR, "settings", str(error), "keep one of the spellings"))
            return parse_options(), findings


def _of_table(table: Table, options: Options) -> list[Finding]:
    """Findings about a table that other processes can write concurrently."""

    def look(_: TableContext) -> list[Finding]:
        return [*_settings(table, options), *_services(table, options), *_state(table, options), *_writers(table, options)]

    def errors(findings: list[Finding]) -> frozenset[Finding]:
        return frozenset(one for one in findings if one.severity is Severity.ERROR)

    findings, lasting = repeat_until_stable(table.context.reloaded(), look, errors)
    return [one for one in findings if one.severity is Severity.WARNING or one in lasting]


def _settings(table: Table, options: Options) -> Iterator[Finding]:
    context = table.context.reloaded()
    config = context.config

    def warn(finding: str, remedy: str) -> Finding:
        return Finding(Severity.WARNING, "settings", finding, remedy)

    try:
        check_open(context)
    except HudiError as error:
        yield Finding(Severity.ERROR, "settings", str(error), "rewrite it with Apache Hudi, without the unsupported feature")
    try:
        check_no_schema_on_read(context)
    except HudiError as error:
        yield warn(str(error), "keep the table version")
    if not config.version.is_writable:
        finding = f"table version {int(config.version)} is read-only"
        yield warn(finding, "upgrade one of version 6 with Table.upgrade(), or keep it for reading")
    if config.merge.mode is MergeMode.EVENT_TIME_ORDERING and not config.ordering_fields:
        finding = "the table merges by event time but has no ordering field, so the latest write always wins"
        yield warn(finding, f"set {ORDERING} when the table is re-created")
    keep_min, keep_max = options.integer(KEEP_MIN_COMMITS), options.integer(KEEP_MAX_COMMITS)
    retained = options.integer(CLEAN_COMMITS_RETAINED)
    if keep_max <= keep_min:
        finding = f"{KEEP_MAX_COMMITS}={keep_max} is not above {KEEP_MIN_COMMITS}={keep_min}: archival refuses to run"
        yield Finding(Severity.ERROR, "settings", finding, f"{KEEP_MAX_COMMITS}={keep_min + 10}")
    if keep_min <= retained:
        finding = f"{KEEP_MIN_COMMITS}={keep_min} archives instants that {CLEAN_COMMITS_RETAINED}={retained} retains for queries"
        yield warn(finding, f"{KEEP_MIN_COMMITS}={retained + 10} and {KEEP_MAX_COMMITS}={retained + 20}")
    if config.is_cow and options.explicit(COMPACT_INLINE) == "true":
        yield warn(f"{COMPACT_INLINE}=true on a copy-on-write table, which has nothing to compact", "leave it out")
    small, largest = options.integer(SMALL_FILE_LIMIT), options.integer(MAX_FILE_SIZE)
    if small >= largest:
        finding = f"{SMALL_FILE_LIMIT}={small} is not below {MAX_FILE_SIZE}={largest}: all files are small"
        yield warn(finding, f"{SMALL_FILE_LIMIT}={largest // 6 * 5}")
    several = options.value_or_default(CONCURRENCY) != "SINGLE_WRITER"
    if several and options.explicit(FAILED_WRITES) == "EAGER":
        finding = f"several writers, and {FAILED_WRITES}=EAGER: each may roll back writes of the others"
        yield Finding(Severity.ERROR, "settings", finding, f"{FAILED_WRITES}=LAZY")
    if not options.flag(METADATA_TABLE) and config.has_metadata_table:
        finding = f"the table has a metadata table, and {METADATA_TABLE}=false: the next write removes it"
        yield warn(finding, f"leave {METADATA_TABLE} out, or remove the metadata table on purpose")
    if not config.populate_meta_fields:
        useless = sorted({RECORD_INDEX, BLOOM_FILTERS}.intersection(config.metadata_partitions))
        if useless:
            finding = f"the table has no meta columns, and {', '.join(useless)}, which is made from them"
            yield warn(finding, f"drop it: Table.index.drop({useless[0]!r})")
    building = context.timeline.load().pending(Action.INDEXING)
    commit = CommitSettings.of(options)
    if config.metadata_partitions_inflight and all(is_action_dead(context, instant, commit) for instant in building):
        names = ", ".join(config.metadata_partitions_inflight)
        yield warn(f"the build of index {names} did not finish: the index is not used", "drop it, and create it again")


def _services(table: Table, options: Options) -> Iterator[Finding]:
    context = table.context.reloaded()
    timeline = context.timeline.load()
    now_ms, zone = context.env.now_ms(), context.config.zone

    def overdue(finding: str, remedy: str) -> Finding:
        return Finding(Severity.WARNING, "services", finding, remedy)

    try:
        if not context.config.is_cow:
            due = compaction_due(timeline, CompactSettings.of(options).compaction, format_instant_time(now_ms, zone), zone)
            if due.is_due:
                yield overdue(f"a compaction is due: {due.reason}", f"pyhudi compact {table.uri}")
        cleaned = preview_clean(context, CleanSettings.of(options))
        if cleaned.file_count:
            finding = f"a clean is due: {cleaned.file_count:,} files, {cleaned.size_bytes:,} bytes that no query needs"
            yield overdue(finding, f"pyhudi clean {table.uri} --yes")
        if reason_not_to_archive(timeline, ArchiveSettings.of(options).archival) is None:
            finding = f"an archival is due: the timeline has {len(timeline.completed_writes()):,} writes"
            yield overdue(finding, f"pyhudi archive {table.uri}")
    except HudiError as error:
        yield Finding(
            Severity.ERROR, "services", f"cannot be planned: {error}", "repair that first, then run the diagnosis again"
        )
    for instant in timeline.pending(*SERVICE_ACTIONS):
        lost = False
        with suppress(HudiError):
            # `_state` reports a plan that cannot be read.
            lost = instant.action is Action.CLUSTERING and changes_hashing_metadata(context, instant)
        if lost:
            finding = (
                f"clustering {instant.request_time} would move records out of the file groups of their buckets, where "
                "writes cannot find them; writes to these file groups wait for it"
            )
            remedy = f"unschedule it: Table.unschedule_clustering({instant.request_time!r})"
            yield Finding(Severity.ERROR, "services", finding, remedy)
            continue
        waited_ms = now_ms - timestamp_from_instant(instant.request_time, zone)
        if instant.state is State.REQUESTED and waited_ms > HOUR_MS:
            command = "cluster" if instant.action is Action.CLUSTERING else "compact"
            hours = waited_ms // HOUR_MS
            finding = f"{instant.action} {instant.request_time} was scheduled {hours:,} hours ago, and no process runs it"
            yield overdue(finding, f"pyhudi {command} {table.uri} --instant {instant.request_time}")


def _state(table: Table, options: Options) -> Iterator[Finding]:
    kinds = (RepairKind.PROPERTIES, RepairKind.PENDING)
    try:
        for step in run_repair(table.context.reloaded(), LocalEngine(1), RepairSettings.of(options, kinds)).steps:
            where = f"{step.path}: " if step.path else ""
            yield Finding(Severity.ERROR, "state", f"{where}{step.finding}", f"pyhudi repair {table.uri} --yes: {step.remedy}")
    except HudiError as error:
        yield Finding(Severity.ERROR, "state", str(error), f"pyhudi validate {table.uri}")
    now_ms = table.context.env.now_ms()
    for lock in table.inspect.locks().to_pylist():
        until = lock["valid_until_ms"]
        if lock["is_held"] and until is not None and until - now_ms > HOUR_MS:
            finding = f"the lock {lock['path']} of {lock['owner']} holds for {(until - now_ms) // HOUR_MS:,} hours more"
            yield Finding(Severity.WARNING, "state", finding, "check with its owner; delete the object if the owner is dead")


def _writers(table: Table, options: Options) -> Iterator[Finding]:
    context = table.context.reloaded()
    timeline = context.timeline.load()
    try:
        for risk in find_writer_risks(context, timeline, load_writers(context, timeline), CommitSettings.of(options)):
            yield Finding(Severity.ERROR if risk.is_loss else Severity.WARNING, "writers", risk.finding, risk.remedy)
    except HudiError as error:
        yield Finding(Severity.ERROR, "writers", str(error), f"pyhudi validate {table.uri}")


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _dotted(version: list[int]) -> str:
    return ".".join(map(str, version))
