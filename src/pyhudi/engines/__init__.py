"""Engines: where tasks run.  `local` runs them in threads of this process, `spark` on a Spark cluster."""
