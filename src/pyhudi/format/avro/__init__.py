"""Avro codec: schemas, single values, and container files with one record. Specification: Avro 1.11."""
