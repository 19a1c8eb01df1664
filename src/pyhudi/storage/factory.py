"""Open the `Storage` of a URI or of a pickled spec.

    /path, file:/path                          local.py
    memory://name/path                         memory.py
    s3, s3a, s3n, gs, gcs, az, abfs, abfss     object_store/
    hdfs, webhdfs                              hdfs/

The spec of a storage with injected faults (fault_injection.py) identifies its fault plan. Opening that spec in the same
process shares the plan.

A pickled storage is serialized as its spec and re-opened when unpickled.
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
    """Open the storage of a URI, path or spec.  Accesses no file.

    Args:
        source: URI, local path, or the spec of another storage.
        options: Storage options (credentials, endpoint, `sync` for local paths).  Not allowed with a spec, which
            includes its
            own.  None values are ignored; a dict is encoded as JSON.

    Raises:
        InvalidRequest: Malformed URI or unknown option.
        Unsupported: Unknown scheme.
    """
    if isinstance(source, StorageSpec):
        if options:
            raise InvalidRequest("a storage spec contains its own options: pass either a spec, or a URI with options")
        uri, storage_options = source.uri, dict(source.options)
    else:
        uri = checked_text(os.fspath(source), "the URI")
        storage_options = _texts(options or {})
    location = parse_uri(uri)
    opener = _OPENERS.get(location.scheme)
    if opener is None:
        raise Unsupported(f"{uri}: scheme {location.scheme}:// is not supported. Supported: {', '.join(sorted(_OPENERS))}")
    token = storage_options.pop(FAULT_OPTION, None)
    storage = opener(location, storage_options)
    return storage if token is None else rejoin(storage, token)


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, value in options.items():
        if value is None:
            continue
        try:
            texts[str(name)] = json.dumps(value) if isinstance(value, Mapping) else str(value)
        except TypeError as error:
            raise InvalidRequest(f"storage option {name}: the value must be text, a number or a dict of them") from error
    return texts


def _as_spec(storage: Any) -> tuple[Callable[[StorageSpec], Storage], tuple[StorageSpec]]:
    return open_storage, (storage.spec(),)


for _storage_class in (LocalStorage, MemoryStorage, ObjectStorage, HdfsStorage, FaultyStorage):
    copyreg.pickle(_storage_class, _as_spec)
