"""The writes: from a caller's rows to a commit."""
