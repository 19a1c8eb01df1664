"""Pure functions on Arrow schemas, arrays and batches: schemas, keys, filters, hashes, column statistics, merging.

Modules in this package do no I/O and use no clock, option dictionary or Spark.
"""
