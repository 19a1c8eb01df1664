"""Write operations: from input rows to a commit."""
