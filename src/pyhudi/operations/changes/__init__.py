"""Row changes: UPDATE and MERGE, from a statement to the rows that are upserted."""
