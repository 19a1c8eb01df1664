"""Commit protocol shared by all mutating operations: transactions, plan claims, rollbacks, conflict checks."""
