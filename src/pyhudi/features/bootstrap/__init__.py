"""Bootstrap: Hudi tables over existing Parquet and ORC files."""
