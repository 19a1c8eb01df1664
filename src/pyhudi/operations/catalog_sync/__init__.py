"""Catalog sync: register the columns and partitions of a table in Hive metastores and AWS Glue."""
