"""The embedded engine: Arrow tables and threads of one process."""
