"""Options: declarations, parsing, and which operations accept which options."""
