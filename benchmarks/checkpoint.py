"""What a run has finished, on disk, so that one that was interrupted goes on instead of starting anew: `--resume`.

The file holds what was asked for and, by name, what is done. A run with other questions, or of another state of the sources,
does not go on from it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Checkpoint:
    """Finished parts of one run: name -> JSON value."""

    def __init__(self, path: Path, asked: Mapping[str, Any], *, resume: bool) -> None:
        """asked: what the run is to do, as JSON. Raises ValueError when the file is of a run that was asked something else."""
        self._path = path
        self._asked = json.loads(json.dumps(asked))
        self._done: dict[str, Any] = {}
        if resume and path.exists():
            said = json.loads(path.read_text())
            if said["asked"] != self._asked:
                changed = [key for key in self._asked if said["asked"].get(key) != self._asked[key]]
                raise ValueError(f"{path} is of another run: {', '.join(changed)} was different; start without --resume")
            self._done = said["done"]

    def __contains__(self, name: str) -> bool:
        return name in self._done

    def __getitem__(self, name: str) -> Any:
        return self._done[name]

    def add(self, name: str, value: Any) -> None:
        """Remember a finished part; it is on disk when this returns."""
        self._done[name] = value
        self._path.parent.mkdir(parents=True, exist_ok=True)
        making = self._path.with_suffix(".making")
        making.write_text(json.dumps({"asked": self._asked, "done": self._done}))
        os.replace(making, self._path)

    def forget(self) -> None:
        """The run is over."""
        self._path.unlink(missing_ok=True)
