"""Table services, one module each, and the service runs that execute those that are due."""
