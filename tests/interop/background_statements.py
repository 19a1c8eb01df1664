"""Statements that Hudi runs in a thread of its driver, while the test goes on. `ApacheHudi.run` takes the programs."""

from __future__ import annotations

BEGIN = """
import threading

def work():
    try:
        spark.sql(text).collect()
    except BaseException as error:
        errors.append(str(error))

for key, value in options.items():
    spark.conf.set(key, value)
errors = []
thread = threading.Thread(target=work)
spark.held = thread, errors
thread.start()
result = None
"""
"""Start a statement: `text` is the SQL, `options` are set in the session."""

END = """
thread, errors = spark.held
thread.join(300)
result = [*errors, "the statement did not end"] if thread.is_alive() else errors
"""
"""Wait for the end of the statement; the result is its errors."""
