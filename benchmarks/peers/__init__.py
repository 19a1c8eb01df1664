"""The systems under test, one module each. They run in worker processes with interpreters of their own: see `worker.py`."""
