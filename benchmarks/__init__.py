"""PyHudi and its peers, side by side: same data, same cores, same driver memory.  README.md says how to run it."""
