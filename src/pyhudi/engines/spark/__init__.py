"""The Spark engine: the operations of the embedded engine, over DataFrames and tasks on a cluster.

Only the public DataFrame API is used (no JVM gateway, no RDD), so everything also runs on Spark Connect.

    type_conversion.py        Spark types <-> Arrow types
    jobs.py                   Python tasks on the cluster, and translation of their errors
    native_keys.py            record keys and partition paths as native columns
    distributed_lookup.py     which file groups contain the keys of a DataFrame
    worker_tasks.py           code on workers: streams of rows become file groups
    prepare_rows.py, incoming.py   input rows converted; cached, measured, looked up
    tagged.py, routing.py     rows with their file groups; the tasks that write them
    driver_batch.py           small batches on the driver
    engine.py                 the Engine protocol over the modules above
    read_dataframe.py         file slices as a DataFrame
    data_source.py            `spark.read.format("pyhudi")`
    data_sink.py              `df.write.format("pyhudi")`
    session_catalog.py        tables in the catalog of a session
    skip_pandas_import.py     faster start of Python workers
"""

try:
    import pyspark as pyspark
except ModuleNotFoundError as error:
    raise ModuleNotFoundError('this needs PySpark: pip install "pyhudi[spark]"', name=error.name) from None

# Before any module of PyHudi that converts Arrow data, so that workers start without importing pandas.
from pyhudi.engines.spark import skip_pandas_import as skip_pandas_import
