"""HDFS, Azurite and two S3 servers next to moto, on the loopback interface, as `make setup-servers` downloads them.

A test whose server is missing is skipped with the command that installs it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

from tests.conformance.moto_server import make_bucket
from tests.conformance.servers import free_port, running
from tests.support.needs import java_home, unavailable

ROOT = Path(__file__).resolve().parents[2]
SERVERS = ROOT / ".servers"

_HDFS_TIMEOUT_S = 600
_BUCKET = "tables"

# Azurite's account, which everybody knows.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True, slots=True)
class Hdfs:
    """A cluster of one NameNode and one DataNode.  http: host:port of its WebHDFS."""

    uri: str
    http: str

    @property
    def options(self) -> dict[str, str]:
        """Storage options that reach it from an `hdfs` URI."""
        return {"http_address": self.http}


@contextmanager
def running_hdfs(folder: Path) -> Iterator[Hdfs]:
    """Hadoop's own mini cluster."""
    home, jars = java_home(17, 99), SERVERS / "hdfs"
    if home is None:
        unavailable("servers", "no Java 17 found; run `make setup` as root, or install one")
    if not any(jars.glob("hadoop-client-minicluster-*.jar")):
        unavailable("servers", "HDFS is not there; run `scripts/setup.sh servers`")
    port, http = free_port(), free_port()
    opened = [
        word for package in ("java.lang", "java.util.concurrent") for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")
    ]
    small = ("-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    program = ROOT / "tests" / "conformance" / "MiniHdfs.java"
    where = ["-cp", f"{jars}{os.sep}*", str(program), str(folder / "data"), str(port), str(http)]
    command: list[str | Path] = [home / "bin" / "java", *small, *opened, f"-Dtest.build.data={folder / 'data'}", *where]
    with running(command, http, folder):
        deadline = time.monotonic() + _HDFS_TIMEOUT_S
        while "READY" not in (folder / "server.log").read_text(errors="replace"):
            assert time.monotonic() < deadline, f"HDFS did not start:\n{(folder / 'server.log').read_text()[-2000:]}"
            time.sleep(0.05)
        yield Hdfs(f"hdfs://localhost:{port}", f"127.0.0.1:{http}")


@contextmanager
def running_azurite(folder: Path) -> Iterator[dict[str, str]]:
    """Azure's emulator, with a container `tables`.  Gives the storage options that reach it."""
    port = free_port()
    memory = ("--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck")
    command: list[str | Path] = [*_node_program("azurite-blob"), *memory, "--blobPort", str(port)]
    with running(command, port, folder) as server:
        endpoint = f"http://{server.address}/{_ACCOUNT}"
        _make_container(endpoint, _BUCKET)
        yield {"account_name": _ACCOUNT, "account_key": _KEY, "endpoint": endpoint}


@contextmanager
def running_versity(folder: Path) -> Iterator[dict[str, str]]:
    """The Versity S3 gateway over a folder, with a bucket `tables`.  Gives the storage options that reach it."""
    program = SERVERS / "bin" / "versitygw"
    if not program.exists():
        unavailable("servers", "the Versity gateway is not there; run `scripts/setup.sh versitygw`, which needs Go")
    port, data = free_port(), folder / "data"
    (data / _BUCKET).mkdir(parents=True)
    command: list[str | Path] = [
        program,
        "--access",
        "test",
        "--secret",
        "testtest",
        "--port",
        f"127.0.0.1:{port}",
        "--quiet",
        "posix",
        data,
    ]
    with running(command, port, folder) as server:
        yield {
            "endpoint": f"http://{server.address}",
            "access_key_id": "test",
            "secret_access_key": "testtest",
            "region": "us-east-1",
        }


@contextmanager
def running_s3rver(folder: Path) -> Iterator[dict[str, str]]:
    """An S3 server of before conditional writes, with a bucket `tables`.  Gives the storage options that reach it."""
    port = free_port()
    command: list[str | Path] = [*_node_program("s3rver"), "-d", folder, "-a", "127.0.0.1", "-p", str(port), "--no-vhost-buckets"]
    with running(command, port, folder) as server:
        make_bucket(f"http://{server.address}", _BUCKET)
        yield {
            "endpoint": f"http://{server.address}",
            "access_key_id": "S3RVER",
            "secret_access_key": "S3RVER",
            "region": "us-east-1",
        }


def _node_program(name: str) -> list[str | Path]:
    node, program = shutil.which("node"), SERVERS / "node_modules" / ".bin" / name
    if node is None or not program.exists():
        unavailable("servers", f"{name} is not there; run `scripts/setup.sh servers`, which needs npm")
    return [node, program]


def _make_container(endpoint: str, name: str) -> None:
    """A request signed as Azure's Shared Key wants it."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    named = "\n".join(f"{key}:{value}" for key, value in headers.items())
    text = f"PUT{chr(10) * 12}{named}\n/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
    signature = base64.b64encode(hmac.new(base64.b64decode(_KEY), text.encode(), hashlib.sha256).digest()).decode()
    headers |= {"Authorization": f"SharedKey {_ACCOUNT}:{signature}", "Content-Length": "0"}
    request = urllib.request.Request(f"{endpoint}/{name}?restype=container", method="PUT", headers=headers)
    urllib.request.urlopen(request, timeout=600).close()
