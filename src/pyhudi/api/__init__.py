"""Public API: tables, scans, merges, services, indexes, inspection and readers for other libraries."""
