"""Very many writers of one table on an object store, simulated: how many commits a second they make, and how long each waits.

    python -m benchmarks.many_writers --writers 1,10,100 --latency-ms 30 --requests-per-second 3500

The table's lock and its commit protocol are PyHudi's own, run on a store in memory that answers late and a clock that is virtual,
so an hour takes as long as what is computed in it.  Each writer has data files of its own (nobody meets anybody), which take
`--work-ms` to write and are not written: what is left is what writers cost each other.

What this does not do: it says nothing about conflicts (see `benchmarks.writers`), and nothing of what the network loses.
"""
