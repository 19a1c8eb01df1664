"""Log files of merge-on-read file groups and the contents of their blocks, as values.

framing.py    blocks in a file: headers, lengths, damage
data.py       the records of AVRO, PARQUET and HFILE blocks <-> Arrow
deletes.py    DELETE blocks: keys, partition paths and ordering values
commands.py   COMMAND blocks, and which blocks of a file slice count
cdc.py        CDC blocks and their three schemas
positions.py  the RECORD_POSITIONS header
"""
