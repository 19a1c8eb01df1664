"""Decisions as values: frozen state and a request in, a frozen plan out.  Nothing here touches storage."""
