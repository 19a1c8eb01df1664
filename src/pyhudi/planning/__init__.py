"""Planning: pure decisions.  Frozen state and a request in, a frozen plan out, without any storage access."""
