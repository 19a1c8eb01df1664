"""The configuration of a user: catalogs, profiles of storage options, and trusted tables.

    file                                        what is used
    the one that PYHUDI_CONFIG names            everything; no other file is read
    ~/.pyhudi.toml                              everything
    .pyhudi.toml of the working directory       catalogs that the user has not defined, if the file is harmless

Other people may have made the working directory: a download, a checkout, a shared folder. Its file is harmless if it contains
nothing but SQLite catalogs whose files and warehouses are located below it. So it cannot refer to files, environment variables
or hosts. Tables of such a catalog are local, and get no storage options.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyhudi.errors import InvalidRequest
from pyhudi.storage.config_file import nearest, read_toml
from pyhudi.storage.uris import parse_uri, sqlite_path

FILE_VARIABLE = "PYHUDI_CONFIG"
_FILE = ".pyhudi.toml"
_SECTIONS = ("catalog", "profile", "trust")


@dataclass(frozen=True, slots=True)
class UserConfiguration:
    """The sections of the configuration.

    Attributes:
        catalogs: Settings of catalogs by name.
        profiles: Storage options by name.
        trusted: Location prefixes of trusted tables.
        location: The file, for messages.
        local: Names in lower case of the catalogs that the file of the working directory defines.
        ignored: Why the file of the working directory is not used; None if it is used or does not exist.
    """

    catalogs: Mapping[str, Mapping[str, Any]]
    profiles: Mapping[str, Mapping[str, Any]]
    trusted: tuple[str, ...]
    location: str
    local: frozenset[str] = frozenset()
    ignored: str | None = None


def load_configuration() -> UserConfiguration:
    """Read the configuration. Raises InvalidRequest if a file of the user is invalid."""
    named = os.environ.get(FILE_VARIABLE)
    own = _own_file()
    configuration = _parse(read_toml(own, "configuration"), own) if named or os.path.isfile(own) else _parse({}, own)
    # Without a file there, the working directory itself may not exist.
    here = os.path.abspath(_FILE) if os.path.isfile(_FILE) else ""
    if named or not here or (os.path.isfile(own) and os.path.samefile(here, own)):
        return configuration
    return _with_working_directory(configuration, here)


def is_trusted(uri: str) -> bool:
    """Return True if the user's own configuration trusts the table at a location. The working directory has no say."""
    own = _own_file()
    if not os.environ.get(FILE_VARIABLE) and not os.path.isfile(own):
        return False
    table = parse_uri(uri).key.rstrip("/") + "/"
    prefixes = _parse(read_toml(own, "configuration"), own).trusted
    return any(table.startswith(parse_uri(os.path.expanduser(prefix)).key.rstrip("/") + "/") for prefix in prefixes)


def _own_file() -> str:
    return os.environ.get(FILE_VARIABLE) or os.path.join(os.path.expanduser("~"), _FILE)


def _parse(document: Mapping[str, Any], where: str) -> UserConfiguration:
    for section in document:
        if section not in _SECTIONS:
            raise InvalidRequest(f"{where} has the unknown section {section!r}{nearest(section, _SECTIONS)}")
    catalogs, profiles = (_named_sections(document, kind, where) for kind in ("catalog", "profile"))
    trust = document.get("trust", {})
    trusted = trust.get("tables", []) if isinstance(trust, dict) and set(trust) <= {"tables"} else None
    if not isinstance(trusted, list) or not all(isinstance(prefix, str) and prefix for prefix in trusted):
        raise InvalidRequest(f'{where}: section [trust] has the one key tables, a list of location prefixes such as "/data/lake"')
    return UserConfiguration(catalogs, profiles, tuple(trusted), where)


def _named_sections(document: Mapping[str, Any], kind: str, where: str) -> dict[str, dict[str, Any]]:
    parts = document.get(kind, {})
    if not isinstance(parts, dict) or not all(isinstance(part, dict) for part in parts.values()):
        raise InvalidRequest(f"{where}: {kind} must be sections [{kind}.NAME]")
    return parts


def _with_working_directory(own: UserConfiguration, here: str) -> UserConfiguration:
    try:
        document = read_toml(here, "configuration")
        problem = _harm_in(document, os.path.dirname(here))
    except InvalidRequest as error:
        problem = str(error)
    if problem is not None:
        reason = f"{here} is not used: {problem}. If it is yours, set {FILE_VARIABLE} to its path"
        return UserConfiguration(own.catalogs, own.profiles, own.trusted, own.location, ignored=reason)
    defined = {name.lower() for name in own.catalogs}
    added = {name: values for name, values in _parse(document, here).catalogs.items() if name.lower() not in defined}
    return UserConfiguration(
        {**own.catalogs, **added},
        own.profiles,
        own.trusted,
        f"{here} or {own.location}",
        frozenset(name.lower() for name in added),
    )


def _harm_in(document: Mapping[str, Any], folder: str) -> str | None:
    """What makes the file of a working directory more than definitions of local catalogs; None for a harmless file."""
    for section in document:
        if section != "catalog":
            return f"a file of the working directory may define catalogs only, and it has section {section!r}"
    for name, values in _named_sections(document, "catalog", "the file").items():
        for key, value in values.items():
            if key not in ("uri", "warehouse") or not isinstance(value, str):
                return f"catalog {name!r} sets {key!r}, which may refer to files, variables or hosts"
            if key == "uri" and not value.startswith("sqlite:"):
                return f"the uri of catalog {name!r} is no SQLite file"
            if not _is_below(folder, sqlite_path(value) if key == "uri" else value):
                return f"the {key} of catalog {name!r} is not located below the working directory"
    return None


def _is_below(folder: str, path: str) -> bool:
    """True for a path on the local disk that is below the working directory after links are followed."""
    try:
        location = parse_uri(path)
    except InvalidRequest:
        return False
    root = os.path.realpath(folder)
    return location.scheme == "file" and os.path.commonpath([root, os.path.realpath(location.file_path)]) == root
