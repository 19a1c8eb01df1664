from collections.abc import Callable, Sequence

import pytest

from .workermanage import WorkerController

class LoadScopeScheduling:
    assigned_work: dict[WorkerController, dict[str, dict[str, bool]]]
    registered_collections: dict[WorkerController, Sequence[str]]
    def __init__(self, config: pytest.Config, log: Callable[..., None] | None = ...) -> None: ...
    def _split_scope(self, nodeid: str) -> str: ...
    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = ...) -> None: ...
