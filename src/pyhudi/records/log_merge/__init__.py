"""Merge log records with each other and with the rows of the base file."""
