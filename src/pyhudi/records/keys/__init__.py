"""Record keys and partition paths: the identity of a row and the folder of its files."""
