"""Read-only `pyarrow.fs.FileSystem` over the files of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow import fs

from pyhudi.errors import Unsupported


def readable_files(name: str, open_file: Callable[[str], pa.NativeFile]) -> Any:
    """Create a read-only `pyarrow.fs.FileSystem` whose files a function opens.

    Args:
        name: Identity of the file system; two with the same name compare equal.
        open_file: Opens a path.  It may be called from several threads at once, and its errors propagate to the reader.
    """
    return fs.PyFileSystem(_ArrowInput(name, open_file))


class _ArrowInput(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow.fs is without types
    def __init__(self, name: str, open_file: Callable[[str], pa.NativeFile]) -> None:
        self._name = name
        self._open = open_file

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ArrowInput) and other._name == self._name

    def __hash__(self) -> int:
        return hash(self._name)

    def get_type_name(self) -> str:
        return "pyhudi"

    def normalize_path(self, path: str) -> str:
        return path

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self._open(path)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self._open(path)

    def _refuse(self, *_: object) -> NoReturn:
        raise Unsupported(f"{self._name}: this file system is read-only")

    get_file_info = get_file_info_selector = _refuse
    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse
