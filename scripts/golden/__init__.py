"""Golden tables: small tables that the real Apache Hudi 1.0.2 writes, kept with the rows that it reads from them.

`python -m scripts.golden [case ...]` (or `make golden`) writes them below tests/golden; tests/support/golden_tables.py opens
them.
"""
