"""From a URI, or the spec of an open storage, to a `Storage`.

    /path, file:/path                          local.py
    memory://name/path                         memory.py
    s3, s3a, s3n, gs, gcs, az, abfs, abfss     objects.py
    hdfs, webhdfs                              hdfs.py

A storage that carries planned faults (faults.py) keeps them: its spec names the plan, and opening the spec in the same process
joins it.

A storage that is pickled travels as its spec, and is opened from it where it arrives.
"""

from __future__ import annotations

import copyreg
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.byte_cursor import checked_text
from pyhudi.storage.base import Storage, StorageSpec
from pyhudi.storage.fault_injection import FAULT_OPTION, FaultyStorage, rejoin
from pyhudi.storage.hdfs.hdfs_options import HDFS_SCHEMES
from pyhudi.storage.hdfs.hdfs_storage import HdfsStorage, open_hdfs
from pyhudi.storage.local import LocalStorage, open_local
from pyhudi.storage.memory import MemoryStorage, open_memory
from pyhudi.storage.object_store.object_options import OBJECT_SCHEMES
from pyhudi.storage.object_store.object_storage import ObjectStorage, open_objects
from pyhudi.storage.uris import Location, parse_uri

_OPENERS: dict[str, Callable[[Location, dict[str, str]], Storage]] = {
    "file": open_local,
    "memory": open_memory,
    **dict.fromkeys(OBJECT_SCHEMES, open_objects),
    **dict.fromkeys(HDFS_SCHEMES, open_hdfs),
}


def open_storage(source: StorageSpec | str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Storage:
    """Open the storage at a URI or path, or the one that a spec describes.  Touches no file.

    options: what the store needs (credentials, endpoint, `sync` for local paths); a spec brings its own, so none then.  What is
    None is not given; a dict stands for its JSON text.
    Raises InvalidRequest for a malformed URI or an unknown option, Unsupported for another scheme.
    """
    if isinstance(source, StorageSpec):
        if options:
            raise InvalidRequest("a storage spec carries its own options; give either a spec or a URI with options")
        uri, given = source.uri, dict(source.options)
    else:
        uri = checked_text(os.fspath(source), "the URI")
        given = _texts(options or {})
    location = parse_uri(uri)
    opener = _OPENERS.get(location.scheme)
    if opener is None:
        raise Unsupported(f"{uri}: no storage for {location.scheme}://, only for {', '.join(sorted(_OPENERS))}")
    token = given.pop(FAULT_OPTION, None)
    storage = opener(location, given)
    return storage if token is None else rejoin(storage, token)


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, value in options.items():
        if value is None:
            continue
        try:
            texts[str(name)] = json.dumps(value) if isinstance(value, Mapping) else str(value)
        except TypeError as error:
            raise InvalidRequest(f"storage option {name}: give text, numbers and dicts of them") from error
    return texts


def _as_spec(storage: Any) -> tuple[Callable[[StorageSpec], Storage], tuple[StorageSpec]]:
    return open_storage, (storage.spec(),)


for _kind in (LocalStorage, MemoryStorage, ObjectStorage, HdfsStorage, FaultyStorage):
    copyreg.pickle(_kind, _as_spec)
