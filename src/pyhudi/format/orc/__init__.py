"""ORC base files, beside what Arrow does of them.

tail.py       the end of a file: its stripes, the zone of its writer, user metadata that is added
columns.py    a table's columns as ORC holds them, and back
reading.py    a file read as a Parquet file is
writing.py    a file being written
"""
