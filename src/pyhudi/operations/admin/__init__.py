"""Creating, checking, repairing and moving whole tables."""
