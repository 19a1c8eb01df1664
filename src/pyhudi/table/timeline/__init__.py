"""The active timeline: what happened to a table, loaded once and frozen, and the few ways to add to it."""
