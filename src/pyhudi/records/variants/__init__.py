"""Values of type VARIANT in the binary encoding of Parquet: read, written, converted to JSON and queried by path."""
