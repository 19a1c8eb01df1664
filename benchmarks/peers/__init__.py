"""Systems under test, one module each; they run in worker processes with interpreters of their own."""
