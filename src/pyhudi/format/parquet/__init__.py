"""Parquet files: checksums, footers, pages and decimals beyond what Arrow does."""
