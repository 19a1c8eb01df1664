"""Golden tables: small tables that the real Apache Hudi 1.0.2 writes, kept with the rows that it reads from them.

`python -m scripts.golden [case ...]` (or `make golden`) makes them anew below tests/golden; tests/golden_tables.py opens them.
"""
