"""Many writers on one table: what is lost, who waits, and how many commits a second come of it.

    python -m benchmarks.writers --writers 8 --commits 200 --kind cow --keys overlapping

Each writer is a process that counts: it reads counters, adds one to each, and writes them back together with a row of its own, as
one commit, and again from the start where another writer was first.  `judge.py` says what must hold afterwards.
"""
