"""The reads: a question becomes file slices, columns and a bound condition."""
