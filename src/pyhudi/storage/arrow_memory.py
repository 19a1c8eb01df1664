"""Memory that Arrow's allocator retains after arrays are freed."""

from __future__ import annotations

import pyarrow as pa


def release_unused_memory() -> None:
    """Return freed memory of Arrow's default pool to the system, where the allocator supports it.

    mimalloc, the default, retains it for a second, separately for each thread: call this in the thread that freed a row
    group, a batch of rows or the input of a task.
    """
    pa.default_memory_pool().release_unused()
