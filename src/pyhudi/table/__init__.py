"""A table's settings and its state at one moment: configuration, file slices, schema."""
