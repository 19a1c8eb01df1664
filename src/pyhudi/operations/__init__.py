"""The operations: each loads the table's state, plans, runs tasks on an engine, and commits."""
