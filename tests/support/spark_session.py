"""The session of PyHudi's own Spark that the tests share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.needs import SMALL_JVM, java_home, unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two cores and UTC; started by the first test that needs it, stopped at the end of the run.

    Tests share it: a test undoes what it sets or registers. Nothing here configures PyHudi, which must work in any session.
    """
    home = java_home(17, 99)
    if home is None:
        unavailable("spark", "no Java >= 17; run `make setup` as root, or install one")
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        unavailable("spark", "PySpark is not installed; run `make setup`")

    scratch = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_HOME", str(home))
        environment.setenv("JDK_JAVA_OPTIONS", SMALL_JVM)
        # Workers must be this interpreter, which has PyHudi; and the host name of a container need not resolve.
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        environment.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        session = (
            SparkSession.builder.master("local[2]")
            .appName("pyhudi-tests")
            .config("spark.driver.memory", "2g")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
            .config("spark.local.dir", str(scratch / "local"))
            .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()
