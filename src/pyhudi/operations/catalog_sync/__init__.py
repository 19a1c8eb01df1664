"""Telling catalogs of other engines what a table is: its columns and its partitions."""
