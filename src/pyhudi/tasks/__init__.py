"""Tasks: picklable units of work, with Arrow batches or a small result as output. The same tasks run in threads and on
Spark workers.
"""
