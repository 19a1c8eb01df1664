"""Record keys and partition paths: what identifies a row, and the folder it lives in."""
