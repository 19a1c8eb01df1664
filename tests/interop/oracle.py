"""Client of an Apache Hudi process.

`ApacheHudi` starts `hudi_server.py` (Spark 3.5 with Hudi's bundle, in the environment .venv-hudi) at the first request,
reuses it, and ends it in `close`. A request that exceeds its deadline kills the process; the next request starts another.

    hudi.write(table, path, **{"hoodie.table.name": "t", ...})
    hudi.read(path, **{"as.of.instant": "2026..."})            -> pyarrow.Table
    hudi.sql("SELECT ...") ; hudi.call("show_commits", path=path) -> pyarrow.Table
    hudi.run("result = jvm. ...", path=path)                   -> a JSON value

What Apache Hudi raises comes back as `HudiFailure`, with the classes and messages of all causes.
"""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.support.needs import SMALL_JVM, java_home

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-hudi" / "bin" / "python"
RELEASE = "1.0.2"

# Spark 3.5 runs on these; Java 24 took away what its Hadoop needs.
JAVA_VERSIONS = (8, 23)

START_TIMEOUT_S = 1200.0
REQUEST_TIMEOUT_S = 1200.0


def jar_of(release: str) -> Path:
    """The bundle of a release, as `make setup-hudi` fetches it."""
    return ROOT / ".hudi-jars" / f"hudi-spark3.5-bundle_2.12-{release}.jar"


def missing(release: str = RELEASE) -> str | None:
    """What this machine lacks to run a release of Apache Hudi, as a sentence; None when all is there."""
    if java_home(*JAVA_VERSIONS) is None:
        return "no Java 17 found; run `make setup` as root, or install one"
    if not PYTHON.exists() or not jar_of(release).exists():
        return f"Apache Hudi is not set up; run `scripts/setup.sh hudi {release}`"
    return None


class HudiFailure(Exception):
    """What Apache Hudi raised.

    causes: (class, message) of each throwable in the chain, outermost first; a class by Java's full name, or Python's bare one.
    """

    def __init__(self, causes: Sequence[tuple[str, str]], stack: str) -> None:
        super().__init__("\n  caused by ".join(f"{name}: {message}" for name, message in causes))
        self.causes = tuple(causes)
        self.stack = stack

    @property
    def root(self) -> tuple[str, str]:
        """Class and message of the innermost cause."""
        return self.causes[-1]

    def mentions(self, text: str) -> bool:
        """Whether a class name or message in the chain contains `text`; Spark often gives a cause as text alone."""
        return any(text in name or text in message for name, message in self.causes)


class HudiUnavailable(Exception):
    """The process of Apache Hudi ended, or did not answer in time. The message ends with the last lines of its log."""


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """An instant as Apache Hudi loads it; times are its 17-digit texts."""

    request_time: str
    action: str
    state: str
    completion_time: str | None


class ApacheHudi:
    """One process of Apache Hudi.

    scratch: a folder for its files; log: its output is appended to this file. settings: of its Spark, in addition to the fixed
    ones.
    """

    def __init__(self, scratch: Path, log: Path, release: str = RELEASE, settings: Mapping[str, str] | None = None) -> None:
        self.release = release
        self._settings = json.dumps(dict(settings or {}))
        self._scratch = scratch
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._row_files = 0

    # -- tables ---------------------------------------------------------------------------------------------------------

    def read(
        self, path: str | os.PathLike[str], *, columns: Sequence[str] | None = None, where: str | None = None, **options: object
    ) -> pa.Table:
        """`spark.read.format("hudi").options(...).load(path)`, then WHERE and SELECT in Spark's SQL.

        Every Spark column comes with its Arrow type (timestamps us UTC, decimals, nesting), all nullable; rows in no order.
        """
        names = list(columns) if columns is not None else None
        return self._table(self._request("read", path=os.fspath(path), options=_texts(options), columns=names, where=where))

    def read_each(self, path: str | os.PathLike[str], filters: Sequence[str], **options: object) -> list[pa.Table]:
        """As `read` with each filter, in one request and one job of Spark."""
        if not filters:
            return []
        found = self._table(self._request("read_each", path=os.fspath(path), options=_texts(options), filters=list(filters)))
        number = found.column(found.num_columns - 1)
        rows = found.remove_column(found.num_columns - 1)
        return [rows.filter(pc.equal(number, filter_number)) for filter_number in range(len(filters))]

    def write(
        self,
        table: pa.Table,
        path: str | os.PathLike[str],
        *,
        mode: str = "append",
        partitions: int | None = None,
        **options: object,
    ) -> None:
        """`df.write.format("hudi").options(...).mode(mode).save(path)`; `partitions`: tasks to deal the rows out to.

        Without a timeline server, which each write would start, unless the options set it or markers that it keeps.
        """
        rows = self._store(table)
        try:
            given = {"rows": str(rows), "schema": str(table.schema), "path": os.fspath(path), "mode": mode}
            needs_server = options.get("hoodie.write.markers.type") == "TIMELINE_SERVER_BASED"
            without_server = {"hoodie.embed.timeline.server": needs_server, **options}
            self._request("write", **given, options=_texts(without_server), partitions=partitions)
        finally:
            rows.unlink()

    def write_avro(
        self, path: str | os.PathLike[str], schema: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], **options: object
    ) -> None:
        """Upsert of records that have an Avro schema, as Hudi's streamer and Flink write them: with types that Spark's rows
        have not.  The first write makes the table, of version 9 and without partitions: its key is `id`, its ordering field `ts`.

        options: among them `hoodie.datasource.write.table.type`.  rows: in Avro's JSON; of `ts` values beyond 32 bits, as smaller
        ones do not reach Java as those of a long column.
        """
        given = {
            "hoodie.table.ordering.fields": "ts",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.index.type": "SIMPLE",
            "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
            **options,
        }
        assert all(row["ts"] >= 1 << 31 for row in rows)
        made = [json.dumps(row) for row in rows]
        self.run(_WRITE_AVRO, path=os.fspath(path), text=json.dumps(schema), rows=made, options=_texts(given))

    def view(self, name: str, table: pa.Table) -> None:
        """A temporary view for statements such as MERGE INTO; a view of that name is replaced."""
        # The file must outlive the call: Spark reads it when a statement does.
        self._request("view", name=name, rows=str(self._store(table)), schema=str(table.schema))

    def sql(self, text: str) -> pa.Table:
        """The rows of a statement; a table without columns for one that has no result."""
        return self._table(self._request("sql", text=text))

    def call(self, procedure: str, **arguments: object) -> pa.Table:
        """`CALL procedure(name => value, ...)`."""
        listed = ", ".join(f"{name} => {_sql_literal(value)}" for name, value in arguments.items())
        return self.sql(f"CALL {procedure}({listed})")

    def compact(self, path: Path, op: str, timestamp: str | None = None, *, metadata: bool = False) -> None:
        """`CALL run_compaction`: op is schedule, run or scheduleAndExecute; timestamp: of the plan to run, None for all of them.

        Anything that has a log is due.
        """
        name = f"{path.name}_{path.parent.name}".replace("-", "_")
        self.register(path, name)
        more = {} if timestamp is None else {"timestamp": int(timestamp)}
        options = f"hoodie.metadata.enable={str(metadata).lower()},hoodie.compact.inline.max.delta.commits=1"
        self.call("run_compaction", op=op, table=name, options=options, **more)

    def log_compact(self, path: Path, schema: str, instant: str | None = None, **options: object) -> str | None:
        """Plans a log compaction (None if none is due), or executes that of `instant`; the instant.

        schema: of the table, in Avro's JSON.
        """
        given = {**_texts(options), "hoodie.log.compaction.enable": "true", "path": str(path)}
        done = self.run(
            _LOG_COMPACTION, path=str(path), given=given, schema=schema, instant=instant, is_newer=self.release != RELEASE
        )
        return None if done is None else str(done)

    def register(self, path: str | os.PathLike[str], name: str) -> None:
        """Makes the table at `path` known to SQL.  Apache Hudi may add `hoodie.table.create.schema` to its properties."""
        self.sql(f"DROP TABLE IF EXISTS {name}")
        self.sql(f"CREATE TABLE {name} USING hudi LOCATION {_sql_literal(os.fspath(path))}")

    # -- below tables ---------------------------------------------------------------------------------------------------

    def run(self, source: str, **inputs: Any) -> Any:
        """Runs Python source in the server, with `spark`, `jvm` and the inputs in scope; the JSON value it leaves in `result`."""
        return self._request("run", source=source, inputs=inputs)

    def add_class(self, source: Path) -> None:
        """Makes the class of a Java file known to Hudi by its name, for the rest of the process: a merger, or a payload.

        Spark's own compiler compiles it, which knows no lambdas, and takes generic types for plain ones.
        """
        self._request("add_class", source=source.read_text())

    def read_file(self, path: str | os.PathLike[str]) -> bytes:
        """A file through Hadoop's client, which checks `.crc` sidecars; `HudiFailure` (ChecksumException) when one is stale."""
        return base64.b64decode(self._request("read_file", path=os.fspath(path)))

    def timeline(self, path: str | os.PathLike[str]) -> tuple[TimelineEntry, ...]:
        """The active timeline as Apache Hudi loads it, oldest first."""
        found = self.run(_META_CLIENT + _TIMELINE, path=os.fspath(path))
        return tuple(TimelineEntry(*entry) for entry in found)

    def properties(self, path: str | os.PathLike[str]) -> dict[str, str]:
        """hoodie.properties as Apache Hudi loads it, which includes the check of its checksum."""
        found = self.run(_META_CLIENT + _PROPERTIES, path=os.fspath(path))
        return dict(found)

    # -- the process ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the process: by the end of its input, and by force when that does not help."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            _kill(process)

    def kill(self) -> None:
        """Kill the process with its JVM, also during a request of another thread, which raises HudiUnavailable."""
        process = self._process
        if process is not None:
            _kill(process)

    def _request(self, operation: str, **request: Any) -> Any:
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"request": operation, **request}).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise self._lost("ended") from None
        answer = self._answer(process, REQUEST_TIMEOUT_S)
        if "failure" in answer:
            failure = answer["failure"]
            raise HudiFailure([(name, message) for name, message in failure["causes"]], failure["stack"])
        return answer["value"]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None:
            return self._process
        lack = missing(self.release)
        if lack is not None:
            raise HudiUnavailable(lack)
        self._scratch.mkdir(parents=True, exist_ok=True)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))},
            "JAVA_HOME": str(java_home(*JAVA_VERSIONS)),
            "JDK_JAVA_OPTIONS": SMALL_JVM,
            "PYSPARK_PYTHON": str(PYTHON),
            "PYSPARK_DRIVER_PYTHON": str(PYTHON),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TZ": "UTC",
        }
        environment.pop("PYTHONPATH", None)
        log: IO[bytes]
        with self._log.open("ab") as log:
            # A session of its own: an interrupt from the keyboard is for the tests, and one signal reaches Python and its JVM.
            process = subprocess.Popen(
                [PYTHON, Path(__file__).with_name("hudi_server.py"), jar_of(self.release), self._scratch, self._settings],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._scratch,
                env=environment,
                start_new_session=True,
            )
        self._process = process
        self._pending = b""
        self._answer(process, START_TIMEOUT_S)
        return process

    def _answer(self, process: subprocess.Popen[bytes], timeout_s: float) -> dict[str, Any]:
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise self._lost(f"did not answer within {timeout_s:.0f} s")
            received = os.read(descriptor, 1 << 16)
            if not received:
                raise self._lost("ended")
            self._pending += received
        line, _, self._pending = self._pending.partition(b"\n")
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def _lost(self, what: str) -> HudiUnavailable:
        process, self._process = self._process, None
        if process is not None:
            _kill(process)
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-40:])
        return HudiUnavailable(f"the process of Apache Hudi {what}; the end of {self._log}:\n{tail}")

    def _store(self, table: pa.Table) -> Path:
        self._scratch.mkdir(parents=True, exist_ok=True)
        self._row_files += 1
        path = self._scratch / f"rows-{self._row_files}.parquet"
        pq.write_table(table, path, store_schema=False)
        return path

    def _table(self, file: str | None) -> pa.Table:
        if file is None:
            return pa.table({})
        try:
            with pa.OSFile(file) as stream:
                rows = pa.ipc.open_stream(stream).read_all()
        finally:
            os.unlink(file)
        return rows.cast(pa.schema([_nullable(field) for field in rows.schema]))


_WRITE_AVRO = """
import os
hudi, avro, java = jvm.org.apache.hudi, jvm.org.apache.avro, jvm.java
schema = avro.Schema.Parser().parse(text)
if not os.path.exists(path + "/.hoodie"):
    conf = hudi.hadoop.fs.HadoopFSUtils.getStorageConf(spark._jsc.hadoopConfiguration())
    made = hudi.common.table.HoodieTableMetaClient.newTableBuilder().setTableName("t").setRecordKeyFields("id")
    made = made.setTableType(options["hoodie.datasource.write.table.type"]).setOrderingFields("ts")
    made = made.setTableVersion(hudi.common.table.HoodieTableVersion.valueOf("NINE"))
    made.setKeyGeneratorClassProp("org.apache.hudi.keygen.NonpartitionedKeyGenerator").initTable(conf, path)
props = java.util.Properties()
for key, value in options.items():
    props.setProperty(key, value)
config = hudi.config.HoodieWriteConfig.newBuilder().withPath(path).withSchema(text).forTable("t").withProps(props)
config = config.withEmbeddedTimelineServerEnabled(False).build()
client = hudi.client.SparkRDDWriteClient(hudi.client.common.HoodieSparkEngineContext(spark._jsc), config)
records = java.util.ArrayList()
for row in rows:
    decoder = avro.io.DecoderFactory.get().jsonDecoder(schema, row)
    record = avro.generic.GenericDatumReader(schema).read(None, decoder)
    payload = hudi.common.model.DefaultHoodieRecordPayload(record, record.get("ts"))
    records.add(hudi.common.model.HoodieAvroRecord(hudi.common.model.HoodieKey(str(record.get("id")), ""), payload))
instant = client.startCommit()
assert client.commit(instant, client.upsert(spark._jsc.parallelize(records, 1), instant))
client.close()
"""

_LOG_COMPACTION = """
options = jvm.java.util.HashMap()
for key, value in given.items():
    options.put(key, value)
jsc = jvm.org.apache.spark.api.java.JavaSparkContext(spark._jsc.sc())
client = jvm.org.apache.hudi.DataSourceUtils.createHoodieClient(jsc, schema, path, "t", options)
try:
    if instant is None:
        planned = client.scheduleLogCompaction(jvm.org.apache.hudi.common.util.Option.empty())
        result = planned.get() if planned.isPresent() else None
    else:
        done = client.logCompact(instant)
        if is_newer:
            client.commitLogCompaction(instant, done, jvm.org.apache.hudi.common.util.Option.empty())
        else:
            client.commitLogCompaction(instant, done.getCommitMetadata().get(), jvm.org.apache.hudi.common.util.Option.empty())
        result = instant
finally:
    client.close()
"""

_META_CLIENT = """
conf = jvm.org.apache.hudi.hadoop.fs.HadoopFSUtils.getStorageConf(spark._jsc.hadoopConfiguration())
client = jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder().setConf(conf).setBasePath(path).build()
"""

_TIMELINE = """
result = [
    [i.requestedTime(), i.getAction(), i.getState().name(), i.getCompletionTime()]
    for i in client.getActiveTimeline().getInstants()
]
"""

_PROPERTIES = """
result = [[str(key), str(value)] for key, value in dict(client.getTableConfig().getProps()).items()]
"""


def _nullable(field: pa.Field) -> pa.Field:
    """The field as one that takes nulls, in all depths: Apache Hudi does not say which columns it has never seen nulls in."""
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(kind.field(number)) for number in range(kind.num_fields)])
    elif pa.types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_type, _nullable(kind.item_field))
    return pa.field(field.name, kind)


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}


def _sql_literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends our own process group, the JVM included."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
