"""Execution engines: `arrow` runs tasks in threads of this process, `spark` on a Spark cluster."""
