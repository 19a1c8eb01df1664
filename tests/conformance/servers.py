"""External servers on the loopback interface, started once per test session and ended by process id."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.needs import java_home, unavailable

# The Java that PySpark 4 runs on; its jars hold the servers.
_JAVA = (17, 99)
_START_TIMEOUT_S = 1200
_ROOT = Path(__file__).resolve().parents[2]
# Below those that Linux assigns to callers that request any port, so that none is used between our choice and the server's start.
_PORTS = range(20_000, 30_000)
_OPENED = ("java.lang", "java.util", "java.util.concurrent", "java.net", "java.io", "java.nio", "sun.nio.ch")


def free_port() -> int:
    """A port without a listener."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs.  address: host:port."""

    address: str
    process: subprocess.Popen[bytes]

    @contextmanager
    def silent(self) -> Iterator[None]:
        """No client gets a response during the block, as when the network is cut."""
        self.process.send_signal(signal.SIGSTOP)
        # A signal is delivered after it is sent: threads of the server may respond until the last one is stopped.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@contextmanager
def running(command: Sequence[str | Path | int], port: int, folder: Path) -> Iterator[Server]:
    """A server process that listens on `port`, until the block ends.  Its output goes to `server.log` in the folder."""
    log = folder / "server.log"
    with log.open("ab") as output:
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder)
    try:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not _accepts(port):
            assert process.poll() is None, f"the server ended at once:\n{log.read_text(errors='replace')[-2000:]}"
            assert time.monotonic() < deadline, f"the server did not start:\n{log.read_text(errors='replace')[-2000:]}"
            time.sleep(0.05)
        yield Server(f"127.0.0.1:{port}", process)
    finally:
        process.kill()
        process.wait()


@contextmanager
def running_zookeeper(folder: Path) -> Iterator[Server]:
    """A ZooKeeper out of the jars of PySpark.  It lets sessions last from 0.4 s to an hour."""
    port = free_port()
    settings = {
        "tickTime": 200,
        "maxSessionTimeout": 3_600_000,
        "dataDir": folder / "data",
        "clientPort": port,
        "clientPortAddress": "127.0.0.1",
        "admin.enableServer": "false",
        "maxClientCnxns": 0,
    }
    config = folder / "zoo.cfg"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    # Its log waits for no disk: no test cuts the power.
    command = _java("-Xmx128m", "-Dzookeeper.forceSync=no", _quiet_logging(folder), main, config)
    with running(command, port, folder) as server:
        yield server


# What Hive's lock calls need; the metastore makes its other tables, and not these.
_LOCK_TABLES = """
CREATE TABLE TXNS (TXN_ID bigint PRIMARY KEY, TXN_STATE char(1) NOT NULL, TXN_STARTED bigint NOT NULL,
  TXN_LAST_HEARTBEAT bigint NOT NULL, TXN_USER varchar(128) NOT NULL, TXN_HOST varchar(128) NOT NULL);
CREATE TABLE TXN_COMPONENTS (TC_TXNID bigint REFERENCES TXNS (TXN_ID), TC_DATABASE varchar(128) NOT NULL,
  TC_TABLE varchar(128), TC_PARTITION varchar(767), TC_OPERATION_TYPE char(1) NOT NULL);
CREATE TABLE HIVE_LOCKS (HL_LOCK_EXT_ID bigint NOT NULL, HL_LOCK_INT_ID bigint NOT NULL, HL_TXNID bigint,
  HL_DB varchar(128) NOT NULL, HL_TABLE varchar(128), HL_PARTITION varchar(767), HL_LOCK_STATE char(1) NOT NULL,
  HL_LOCK_TYPE char(1) NOT NULL, HL_LAST_HEARTBEAT bigint NOT NULL, HL_ACQUIRED_AT bigint, HL_USER varchar(128) NOT NULL,
  HL_HOST varchar(128) NOT NULL, HL_HEARTBEAT_COUNT integer, HL_AGENT_INFO varchar(128), HL_BLOCKEDBY_EXT_ID bigint,
  HL_BLOCKEDBY_INT_ID bigint, PRIMARY KEY (HL_LOCK_EXT_ID, HL_LOCK_INT_ID));
CREATE TABLE NEXT_LOCK_ID (NL_NEXT bigint NOT NULL);
INSERT INTO NEXT_LOCK_ID VALUES (1);
CREATE TABLE AUX_TABLE (MT_KEY1 varchar(128) NOT NULL, MT_KEY2 bigint NOT NULL, MT_COMMENT varchar(255),
  PRIMARY KEY (MT_KEY1, MT_KEY2));
"""


@contextmanager
def running_metastore(folder: Path) -> Iterator[Server]:
    """A Hive metastore out of the jars of PySpark, on a Derby database in the folder."""
    port = free_port()
    script = folder / "tables.sql"
    script.write_text(f"CONNECT 'jdbc:derby:{folder}/db;create=true';\n{_LOCK_TABLES}")
    unsynced = "-Dderby.system.durability=test"
    build = _java("-Xmx128m", unsynced, "org.apache.derby.tools.ij", script)
    subprocess.run(build, check=True, cwd=folder, stdout=subprocess.DEVNULL)
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/db",
        "datanucleus.schema.autoCreateAll": "true",
        # The other pools are not among PySpark's jars.
        "datanucleus.connectionPoolingType": "none",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"file:{folder}/warehouse",
        "hive.support.concurrency": "true",
        "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
        "hive.async.log.enabled": "false",
    }
    properties = "".join(f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items())
    (folder / "hive-site.xml").write_text(f"<configuration>{properties}</configuration>")
    quiet = _quiet_logging(folder)
    command = _java("-Xmx300m", quiet, unsynced, "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port), conf=folder)
    with running(command, port, folder) as server:
        yield server


# Amazon's own program listens on every address of the machine.
_LOOPBACK = """import com.amazonaws.services.dynamodbv2.local.main.ServerRunner;
import com.amazonaws.services.dynamodbv2.local.server.DynamoDBProxyServer;
import org.eclipse.jetty.server.*;
public class Loopback {
    public static void main(String[] port) throws Exception {
        String[] words = {"-inMemory", "-sharedDb", "-disableTelemetry", "-port", port[0]};
        DynamoDBProxyServer local = ServerRunner.createServerFromCommandLineArgs(words);
        java.lang.reflect.Field server = DynamoDBProxyServer.class.getDeclaredField("server");
        server.setAccessible(true);
        for (Connector one : ((Server) server.get(local)).getConnectors()) ((ServerConnector) one).setHost("127.0.0.1");
        local.start();
        local.join();
    }
}
"""


@contextmanager
def running_dynamodb_local(folder: Path) -> Iterator[Server]:
    """Amazon's DynamoDB Local, in memory.  Its jars are those that `make setup-servers` fetches."""
    home, jars = java_home(*_JAVA), _ROOT / ".servers" / "dynamodb"
    if home is None or not (home / "bin" / "javac").exists():
        unavailable("servers", "no JDK 17 found; run `make setup` as root, or install one")
    if not any(jars.glob("DynamoDBLocal-*.jar")):
        unavailable("servers", "DynamoDB Local is not set up; run `make setup-servers`")
    assert home is not None
    source = folder / "Loopback.java"
    source.write_text(_LOOPBACK)
    subprocess.run([home / "bin" / "javac", "-cp", f"{jars}/*", "-d", folder, source], check=True, timeout=600)
    port = free_port()
    words = ["-XX:TieredStopAtLevel=1", "-Xmx200m", f"-Djava.library.path={jars}", "-cp", f"{folder}{os.pathsep}{jars}/*"]
    with running([home / "bin" / "java", *words, "Loopback", port], port, folder) as server:
        yield server


# The name under which Apache Hudi's client knows the codec of cells: its bundle has HBase's classes under other names.
_CODEC = """package org.apache.hudi.org.apache.hadoop.hbase.codec;
public class KeyValueCodec extends org.apache.hadoop.hbase.codec.KeyValueCodec { }
"""


@contextmanager
def running_hbase(folder: Path) -> Iterator[tuple[Server, int]]:
    """HBase in one process, its data in the folder, and its Thrift server; with the port of its ZooKeeper.

    Its jars are those that `make setup-servers` fetches.
    """
    home, jars = java_home(*_JAVA), _ROOT / ".hbase-jars"
    if home is None:
        unavailable("servers", "no Java 17 found; run `make setup` as root, or install one")
    if not any(jars.glob("hbase-thrift-*.jar")):
        unavailable("servers", "HBase is not set up; run `make setup-servers`")
    assert home is not None
    zookeeper, thrift = free_port(), free_port()
    settings = {
        "hbase.rootdir": f"file://{folder}/root",
        "hbase.tmp.dir": folder / "tmp",
        "hbase.unsafe.stream.capability.enforce": "false",
        "hbase.wal.provider": "filesystem",
        "hbase.zookeeper.property.clientPort": zookeeper,
        "hbase.zookeeper.property.dataDir": folder / "zookeeper",
        "hbase.zookeeper.quorum": "127.0.0.1",
        "hbase.master.port": 0,
        "hbase.regionserver.port": 0,
        "hbase.master.hostname": "localhost",
        "hbase.regionserver.hostname": "localhost",
        "hbase.master.info.port": -1,
        "hbase.regionserver.info.port": -1,
        "hbase.thrift.info.port": -1,
        # Each table's first entry would take 2 MB of the little memory that is there, and a hundred tables all of it.
        "hbase.hregion.memstore.mslab.enabled": "false",
    }
    properties = "".join(f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items())
    (folder / "hbase-site.xml").write_text(f"<configuration>{properties}</configuration>")
    source = folder / "KeyValueCodec.java"
    source.write_text(_CODEC)
    if (home / "bin" / "javac").exists():
        subprocess.run([home / "bin" / "javac", "-cp", f"{jars}/*", "-d", folder, source], check=True, timeout=600)
    words = ["--add-opens", "java.base/java.nio=ALL-UNNAMED", "--add-exports", "java.base/jdk.internal.misc=ALL-UNNAMED"]
    words += [word for package in _OPENED for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
    words += ["-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true", f"-Dhbase.log.dir={folder}"]
    java: list[str | Path | int] = [home / "bin" / "java", "-XX:TieredStopAtLevel=1", *words]
    java += ["-cp", f"{folder}{os.pathsep}{jars}/*"]
    master: list[str | Path | int] = [*java, "-Xmx500m", "org.apache.hadoop.hbase.master.HMaster", "start"]
    gateway: list[str | Path | int] = [
        *java,
        "-Xmx200m",
        "org.apache.hadoop.hbase.thrift2.ThriftServer",
        "start",
        "--port",
        thrift,
        "--bind",
        "127.0.0.1",
    ]
    with running(master, zookeeper, folder), running(gateway, thrift, folder) as server:
        yield server, zookeeper


def _quiet_logging(folder: Path) -> str:
    """An option of Java."""
    properties = folder / "log4j2.properties"
    properties.write_text("rootLogger.level = warn\n")
    return f"-Dlog4j2.configurationFile={properties}"


def _java(*arguments: str | Path, conf: Path | None = None) -> list[str | Path]:
    """A command line of Java with PySpark's jars, `conf` before them, or a skipped test where there is none."""
    home, found = java_home(*_JAVA), importlib.util.find_spec("pyspark")
    if home is None:
        unavailable("servers", "no Java 17 found; run `make setup` as root, or install one")
    if found is None or found.origin is None:
        unavailable("servers", "PySpark is not installed, whose jars hold the servers")
    assert found.origin is not None
    jars = Path(found.origin).parent / "jars"
    classes = os.pathsep.join([*([] if conf is None else [str(conf)]), f"{jars}{os.sep}*"])
    opened = [word for package in _OPENED for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
    return [home / "bin" / "java", "-XX:TieredStopAtLevel=1", *opened, "-cp", classes, *arguments]


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
