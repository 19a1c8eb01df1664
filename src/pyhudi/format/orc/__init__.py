"""ORC base files, in addition to what Arrow implements.

orc_tail.py      the end of a file: its stripes, the writer's time zone, added user metadata
orc_columns.py   conversion of a table's columns to and from ORC types
orc_reader.py    a reader with the interface of a Parquet file
orc_writer.py    a writer
"""
