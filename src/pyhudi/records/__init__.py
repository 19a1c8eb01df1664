"""Pure functions on Arrow schemas, arrays and batches: schemas, keys, filters, hashes, column ranges, merging.

Nothing here knows a file, a clock, an option dictionary or Spark.
"""
