"""Tasks: a picklable value goes in, Arrow batches or a small result come out.  The same tasks run in threads and on Spark
workers.
"""
