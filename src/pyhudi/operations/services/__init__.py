"""Table services: one module each, and the passes that run those that are due."""
