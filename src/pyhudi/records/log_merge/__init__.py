"""Merging of log records with each other and with base file rows."""
