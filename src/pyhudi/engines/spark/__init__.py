"""The Spark engine: the same operations as the embedded one, over DataFrames and tasks on a cluster.

Only the public DataFrame API is used (no JVM gateway, no RDD, no session configuration is changed), so all of it also runs on
Spark Connect.

    convert.py    Spark types <-> Arrow types
    jobs.py       Python tasks on the cluster, and errors on their way back
    keys.py       record keys and partition paths as native columns
    lookup.py     which file groups hold the keys of a DataFrame
    tasks.py      what runs on workers: streams of rows become file groups
    preparation.py, incoming.py   the caller's rows made ready; kept, measured, looked up
    tagged.py, routing.py         rows that know their file group; the tasks that write them
    taken.py      small batches on the driver
    engine.py     the Engine protocol over the modules above
    read.py       file slices as a DataFrame
    source.py     `spark.read.format("pyhudi")`
    sink.py       `df.write.format("pyhudi")`
    catalog.py    names in the catalog of a session
    workers.py    which Python workers run
    worker_start.py   what a Python worker does first
"""

try:
    import pyspark as pyspark
except ModuleNotFoundError as error:
    raise ModuleNotFoundError('this needs PySpark: pip install "pyhudi[spark]"', name=error.name) from None

# Before any module of PyHudi that converts something, so that a worker starts without pandas.
from pyhudi.engines.spark import skip_pandas_import as skip_pandas_import
