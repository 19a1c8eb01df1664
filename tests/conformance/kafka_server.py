"""A Kafka broker in KRaft mode, and a PostgreSQL server, on the loopback interface."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.servers import Server, free_port, running
from tests.support.needs import java_home, unavailable

_ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def running_kafka(folder: Path) -> Iterator[Server]:
    """One process that is broker and controller.  Its jars are those that `make setup-servers` fetches."""
    home, jars = java_home(17, 99), _ROOT / ".servers" / "kafka"
    if home is None:
        unavailable("servers", "no Java 17 found; run `make setup` as root, or install one")
    if not any(jars.glob("kafka_2.13-*.jar")):
        unavailable("servers", "Kafka is not set up; run `make setup-servers`")
    assert home is not None
    port, controller = free_port(), free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "logs",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        "auto.create.topics.enable": "false",
    }
    config = folder / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    java: list[str | Path | int] = [home / "bin" / "java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}{os.sep}*"]
    formatted = [
        *map(str, java),
        "kafka.tools.StorageTool",
        "format",
        "--cluster-id",
        "pyhudi-test-kafka-0001",
        "--config",
        str(config),
    ]
    subprocess.run(formatted, check=True, cwd=folder, stdout=subprocess.DEVNULL, timeout=600)
    with running([*java, "kafka.Kafka", config], port, folder) as server:
        yield server


@contextmanager
def running_postgresql(folder: Path) -> Iterator[str]:
    """A PostgreSQL server with the password hunter-two; yields the URI of its database without user and password."""
    programs = [Path(found).parent for name in ("postgres", "initdb") if (found := shutil.which(name))]
    programs += sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    home = next((path for path in programs if (path / "initdb").exists() and (path / "postgres").exists()), None)
    if home is None:
        unavailable("servers", "PostgreSQL is not installed")
    assert home is not None
    # PostgreSQL does not run as root.
    account = ["runuser", "-u", "nobody", "--"] if os.getuid() == 0 else []
    data = folder / "data"
    data.mkdir()
    (folder / "password").write_text("hunter-two")
    for path in (folder, data, folder / "password"):
        if account:
            shutil.chown(path, "nobody")
    for parent in folder.parents:
        if account and parent.name.startswith("pytest"):
            parent.chmod(0o755)
    build = [
        *account,
        str(home / "initdb"),
        "-D",
        str(data),
        "-U",
        "reader",
        "-A",
        "scram-sha-256",
        "--pwfile",
        str(folder / "password"),
        "-N",
    ]
    subprocess.run(build, check=True, cwd=folder, stdout=subprocess.DEVNULL, timeout=600)
    port = free_port()
    command = [*account, str(home / "postgres"), "-D", str(data), "-p", str(port), "-k", str(folder), "-h", "127.0.0.1", "-F"]
    with running(command, port, folder) as server:
        # It accepts connections before it answers them.
        while server.process.poll() is None and "ready to accept connections" not in (folder / "server.log").read_text():
            time.sleep(0.05)
        yield f"postgresql://127.0.0.1:{port}/postgres"
