"""How the cost of a small commit and of a read grows, along each axis of a table's size: `python -m benchmarks.curves`."""
