"""Which Parquet reader takes least for the base files of a table of ours: `python -m benchmarks.readers`."""
