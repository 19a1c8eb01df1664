"""Many writers of one table: what is lost, how long writers wait, and how many commits per second complete.

Each writer is a process. In mode `count` it reads counters, adds one to each, and writes them with a row of its own in one
commit, again from the start after a conflict. In mode `write` it upserts rows that all writers change, with a row of its own.
`violations.py` states what must hold afterwards.
"""
