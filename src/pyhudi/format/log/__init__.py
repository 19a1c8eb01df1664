"""Log files of merge-on-read file groups, and the contents of their blocks.

framing.py           blocks in a file: headers, lengths, corruption
log_corruption.py    torn blocks versus corruption
data_blocks.py       the records of AVRO, PARQUET and HFILE blocks <-> Arrow
delete_blocks.py     DELETE blocks: keys, partition paths and ordering values
kryo.py              DELETE blocks of old tables
command_blocks.py    COMMAND blocks, and which blocks of a file slice a reader merges
cdc_blocks.py        CDC blocks and their three schemas
record_positions.py  the RECORD_POSITIONS header
"""
