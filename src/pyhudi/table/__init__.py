"""A table's configuration and snapshot: timeline, file slices, schema, caches."""
