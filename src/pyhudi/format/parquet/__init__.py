"""Parquet in addition to Arrow: page and footer checksums, page-level reads, footer validation and fast decimals."""
