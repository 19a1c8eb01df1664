"""Apache Hudi behind a pipe: a Spark 3.5 with the Hudi bundle that obeys one JSON request per line.

Runs under the interpreter of .venv-hudi and needs nothing but PySpark; `oracle.py` starts it and communicates with it.

    hudi_server.py JAR SCRATCH

stdin    {"request": "read", ...}                 one request per line; the end of the input ends the process
stdout   {"ready": true}                          once, when Spark has started
         {"value": ...} or {"failure": {...}}     one answer per request, in order
stderr   all that Python, Spark and Hudi print

Rows come as Parquet files and go as Arrow streams, which keep decimals, nesting and times in UTC: an answer that is a table is
the path of a file.

Spark has the settings that Hudi's documentation requires and otherwise its defaults; LOCAL_FILES lists the differences for local
files. The jar is on spark.driver.extraClassPath: through spark.jars Hudi's own classes are loaded twice, and reading its metadata
table fails.
"""

from __future__ import annotations

import base64
import functools
import glob
import itertools
import json
import os
import sys
import traceback
import zipfile
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import NullType, StructType

END_OF_ARROW_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"

FILTER_NUMBER = "filter_number"

# What Hadoop's own files say of clusters and stores that are not here.  Apache Hudi sends all of Hadoop's settings with each
# task, most of a thousand, and without these a write takes a quarter less processor time.
UNUSED_SETTINGS = (
    "yarn.",
    "dfs.",
    "fs.s3a.",
    "fs.azure.",
    "fs.abfs.",
    "ftp.",
    "fs.ftp.",
    "ipc.",
    "ha.",
    "hadoop.http.",
    "hadoop.registry.",
    "mapreduce.job",
    "mapreduce.map.",
    "mapreduce.reduce.",
)

# Hadoop's settings files, which Hudi loads again for most files that it opens. The first ones omit unused entries, the others are
# empty: otherwise each of 250 jars would be searched for them.
HADOOP_DEFAULTS = ("core-default.xml", "mapred-default.xml", "yarn-default.xml")
HADOOP_SITE = ("core-site.xml", "mapred-site.xml", "yarn-site.xml", "hdfs-default.xml", "hdfs-site.xml")

# Hudi measures its records with JOL, which otherwise starts two more JVMs to find out the layout of objects.
JOL = "-Djol.skipHotspotSAAttach=true"

# Without its native library, Hadoop's client reads and sets the permission of a local file by a separate process, ls or chmod: a
# hundred for each write. This class does the same by system calls, and is otherwise Hadoop's.
LOCAL_FILES = """
import java.io.FileNotFoundException;
import java.io.IOException;
import java.lang.reflect.Method;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends RawLocalFileSystem {
    public static class Installer {
        public void install(Configuration conf) throws Exception {
            URI root = URI.create("file:///");
            FileSystem files = new LocalFileSystem(new LocalFiles());
            files.initialize(root, conf);
            Method add = FileSystem.class.getDeclaredMethod(
                "addFileSystemForTesting", new Class[] {URI.class, Configuration.class, FileSystem.class});
            add.setAccessible(true);
            add.invoke(null, new Object[] {root, conf, files});
        }
    }

    public void setPermission(Path path, FsPermission permission) throws IOException {
        String named = new FsPermission((short) (permission.toShort() & 0777)).toString();
        Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(named));
    }

    public FileStatus getFileStatus(Path path) throws IOException {
        FileStatus found = super.getFileStatus(path);
        String user = System.getProperty("user.name");
        try {
            String permission = PosixFilePermissions.toString(
                Files.getPosixFilePermissions(pathToFile(path).toPath(), new LinkOption[0]));
            return new FileStatus(found.getLen(), found.isDirectory(), found.getReplication(), found.getBlockSize(),
                found.getModificationTime(), found.getAccessTime(), FsPermission.valueOf("-" + permission), user, user,
                found.getPath());
        } catch (NoSuchFileException gone) {
            throw new FileNotFoundException("File " + path + " does not exist");
        }
    }
}
"""


# Spark reads the whole class of each function that it is given, for what only a shell puts there, and serializes the function to
# see whether it can: a sixth of the processor time of a write.  Hudi's functions come from no shell, and one that cannot be sent
# fails when it is sent.
TRUSTED_FUNCTIONS = """
package org.apache.spark.util;

public final class ClosureCleaner$ {
    public static final ClosureCleaner$ MODULE$ = new ClosureCleaner$();

    public void clean(Object function, boolean checkSerializable, boolean cleanTransitively) {
    }

    public boolean clean$default$2() {
        return true;
    }

    public boolean clean$default$3() {
        return true;
    }
}
"""

# The heap has its last size from the start, and much of it is for what is young: else all of it is collected every few seconds.
HEAP = "-Xms1g -Xmn448m -XX:MetaspaceSize=400m"


def install_local_files(spark: SparkSession) -> None:
    """Every file system of this process for local paths is that of LOCAL_FILES."""
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(LOCAL_FILES)
    made = compiler.getClassLoader().loadClass("LocalFiles$Installer").newInstance()
    made.install(spark._jsc.hadoopConfiguration())


def classes_of(scratch: str) -> str:
    """The folder of the classes that a test brings; on the class path, so it has to be there before the JVM is."""
    folder = os.path.join(scratch, "classes")
    os.makedirs(folder, exist_ok=True)
    return folder


def shorten_settings(folder: str) -> None:
    """Puts HADOOP_DEFAULTS and HADOOP_SITE into a folder."""
    (jar,) = glob.glob(os.path.join(os.path.dirname(pyspark.__file__), "jars", "hadoop-client-api-*.jar"))
    with zipfile.ZipFile(jar) as files:
        for name in (*HADOOP_DEFAULTS, *HADOOP_SITE):
            short = ElementTree.Element("configuration")
            for entry in ElementTree.fromstring(files.read(name)) if name in HADOOP_DEFAULTS else ():
                if not entry.findtext("name", "").startswith(UNUSED_SETTINGS):
                    kept = [part for part in entry if part.tag != "description"]
                    ElementTree.SubElement(short, "property").extend(kept)
            ElementTree.ElementTree(short).write(os.path.join(folder, name))


def start_spark(jar: str, scratch: str, settings: dict[str, Any]) -> SparkSession:
    classes = classes_of(scratch)
    shorten_settings(classes)
    conf = (
        SparkConf()
        .setMaster("local[2]")
        .setAppName("real-hudi")
        .set("spark.driver.memory", "1g")
        .set("spark.driver.bindAddress", "127.0.0.1")
        .set("spark.driver.host", "127.0.0.1")
        .set("spark.driver.extraClassPath", f"{jar}:{classes}")
        .set("spark.driver.extraJavaOptions", f"-Duser.timezone=UTC -Djava.io.tmpdir={scratch} {JOL} {HEAP}")
        .set("spark.local.dir", scratch)
        .set("spark.sql.warehouse.dir", f"{scratch}/warehouse")
        .set("spark.ui.enabled", "false")
        .set("spark.ui.showConsoleProgress", "false")
        .set("spark.sql.session.timeZone", "UTC")
        .set("spark.sql.shuffle.partitions", "2")
        .set("spark.default.parallelism", "2")
        # All code that Spark has compiled is kept: tables of the same columns need it again and again.
        .set("spark.sql.codegen.cache.maxEntries", "10000")
        .set("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
        .set("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
        .set("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
        .set("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
        .setAll(list(settings.items()))
    )
    # The JVM alone, which finds Spark's classes when it needs them.
    SparkContext._ensure_initialized(conf=conf)
    add_class(SparkContext._jvm, scratch, TRUSTED_FUNCTIONS)
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    install_local_files(spark)
    return spark


def add_class(jvm: Any, scratch: str, source: str) -> None:
    """Compiles Java source and puts its classes where the loader of Hudi's own finds them by name."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    made = compiler.getBytecodes()
    for name in made.keySet().toArray():
        file = os.path.join(classes_of(scratch), *name.split(".")) + ".class"
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file, "wb") as stream:
            stream.write(made[name])


class Server:
    def __init__(self, spark: SparkSession, scratch: str) -> None:
        self.spark = spark
        self.jvm: Any = spark._jvm
        self.scratch = scratch
        self.results = itertools.count()
        self.schemas: dict[str, StructType] = {}
        self.operations: dict[str, Callable[..., Any]] = {
            "read": self.read,
            "read_each": self.read_each,
            "write": self.write,
            "view": self.view,
            "sql": self.sql,
            "run": self.run,
            "read_file": self.read_file,
            "add_class": self.add_class,
        }

    def read(self, path: str, options: dict[str, str], columns: list[str] | None, where: str | None) -> str:
        frame = self.spark.read.format("hudi").options(**options).load(path)
        if where is not None:
            frame = frame.where(where)
        if columns is not None:
            frame = frame.select(*columns)
        return self.store(frame)

    def read_each(self, path: str, options: dict[str, str], filters: list[str]) -> str:
        """One result for all filters, with the number of the filter in the last column; each is planned by itself."""
        load = self.spark.read.format("hudi").options(**options).load
        frames = [load(path).where(text).withColumn(FILTER_NUMBER, F.lit(number)) for number, text in enumerate(filters)]
        return self.store(functools.reduce(DataFrame.union, frames))

    def write(self, rows: str, schema: str, path: str, mode: str, options: dict[str, str], partitions: int | None) -> None:
        frame = self.rows(rows, schema)
        if partitions is not None:
            frame = frame.repartition(partitions)
        frame.write.format("hudi").options(**options).mode(mode).save(path)

    def view(self, name: str, rows: str, schema: str) -> None:
        self.rows(rows, schema).createOrReplaceTempView(name)

    def sql(self, text: str) -> str | None:
        frame = self.spark.sql(text)
        return self.store(frame) if frame.columns else None

    def run(self, source: str, inputs: dict[str, Any]) -> Any:
        """Runs Python source with `spark`, `jvm` and the inputs in scope; the answer is what it leaves in `result`."""
        scope = {"spark": self.spark, "jvm": self.jvm, **inputs}
        exec(compile(source, "<request>", "exec"), scope)
        return scope.get("result")

    def read_file(self, path: str) -> str:
        """The bytes of a file as Hadoop's client sees it, which checks a .crc sidecar; in base64."""
        file = self.jvm.org.apache.hadoop.fs.Path(path)
        stream = file.getFileSystem(self.spark._jsc.hadoopConfiguration()).open(file)
        try:
            return base64.b64encode(bytes(self.jvm.org.apache.commons.io.IOUtils.toByteArray(stream))).decode("ascii")
        finally:
            stream.close()

    def add_class(self, source: str) -> None:
        add_class(self.jvm, self.scratch, source)

    def rows(self, path: str, schema: str) -> DataFrame:
        """The rows of a Parquet file.  schema: names its columns; Spark looks into the first file of each schema alone."""
        reader = self.spark.read.option("datetimeRebaseMode", "CORRECTED")
        if schema in self.schemas:
            return reader.schema(self.schemas[schema]).parquet(path)
        frame = reader.parquet(path)
        self.schemas[schema] = frame.schema
        return frame

    def store(self, frame: DataFrame) -> str:
        """Writes a frame as an Arrow stream into a file of its own.  A column without a type (NULL) becomes one of text.

        Spark converts the rows as for `toPandas`; a job that writes Parquet files would cost four times as much.
        """
        untyped = {field.name for field in frame.schema.fields if isinstance(field.dataType, NullType)}
        if untyped:
            frame = frame.select(*(F.col(f"`{c}`").cast("string").alias(c) if c in untyped else f"`{c}`" for c in frame.columns))
        batches = frame._jdf.toArrowBatchRdd().collect()
        arrow = self.jvm.org.apache.spark.sql.util.ArrowUtils
        schema = arrow.toArrowSchema(frame._jdf.schema(), "UTC", False, False)
        head = self.jvm.java.io.ByteArrayOutputStream()
        channel = self.jvm.org.apache.arrow.vector.ipc.WriteChannel(self.jvm.java.nio.channels.Channels.newChannel(head))
        self.jvm.org.apache.arrow.vector.ipc.message.MessageSerializer.serialize(channel, schema)
        file = f"{self.scratch}/result-{next(self.results)}.arrow"
        with open(file, "wb") as stream:
            for part in (head.toByteArray(), *batches, END_OF_ARROW_STREAM):
                stream.write(bytes(part))
        return file

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        operation = self.operations[request.pop("request")]
        try:
            return {"value": operation(**request)}
        except Exception as error:
            traceback.print_exc()
            return {"failure": describe(error)}


def describe(error: Exception) -> dict[str, Any]:
    """An exception as plain values: the chain of causes outermost first, each with class and message, and the stack as text."""
    if isinstance(error, Py4JJavaError):
        thrown = error.java_exception
    elif isinstance(error, CapturedException) and error._origin is not None:
        thrown = error._origin
    else:
        return {"causes": [[type(error).__name__, str(error)]], "stack": traceback.format_exc()}
    causes: list[list[str]] = []
    cause = thrown
    while cause is not None and len(causes) < 30:
        causes.append([cause.getClass().getName(), cause.getMessage() or ""])
        cause = cause.getCause()
    return {"causes": causes, "stack": thrown_stack(thrown)}


def thrown_stack(thrown: Any) -> str:
    lines = [str(line) for line in thrown.getStackTrace()]
    return "\n".join(lines[:60])


def main() -> None:
    jar, scratch, settings = sys.argv[1:]
    # Text on standard output must not mix with the responses: they have a descriptor that no other code uses.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    server = Server(start_spark(jar, scratch, json.loads(settings)), scratch)
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        print(json.dumps(server.answer(json.loads(line))), file=answers)
    server.spark.stop()


if __name__ == "__main__":
    main()
