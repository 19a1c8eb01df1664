"""Avro as Hudi uses it: schemas, single values, and container files that hold one record.  Source: Avro specification 1.11."""
