"""The SQL function `read_blob` of Spark sessions: the bytes of BLOB values, read by the workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from pyhudi import features
from pyhudi.engines.spark.type_conversion import SparkSession


def register_read_blob(spark: SparkSession, roots: str | None, storage_options: Mapping[str, str] | None) -> None:
    """Define the temporary function `read_blob` of a session.

    Args:
        roots: Folders whose files may be read, separated by commas.
        storage_options: Credentials and settings of their object stores.
    """
    options = dict(storage_options or {})

    def read_blob(blobs: pa.Array) -> pa.Array:
        content = features.load("blob_reader", "read_blob").BlobReader(roots, options).read(blobs)
        return pa.concat_arrays(content.chunks) if content.num_chunks else pa.nulls(0, pa.binary())

    function: Any = arrow_udf
    spark.udf.register("read_blob", function(read_blob, T.BinaryType()))
