"""Catalogs and profiles of the configuration file and the environment.

    # the file that PYHUDI_CONFIG names, else .pyhudi.toml of the working directory, else ~/.pyhudi.toml
    [catalog.lake]
    uri = "postgresql://catalog-host/lake"
    warehouse = "s3://bucket/lake"
    user = "reader"
    password = { env = "LAKE_PASSWORD" }
    profile = "minio"

    [profile.minio]
    endpoint = "http://minio:9000"
    secret_access_key = { env = "MINIO_SECRET" }

A variable PYHUDI_CATALOG__LAKE__URI sets or replaces one key. A secret is a reference; in clear it is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyhudi.errors import InvalidRequest
from pyhudi.features.catalogs.catalog_store import CatalogStore, Reference, check_name
from pyhudi.features.catalogs.metastore_store import MetastoreStore
from pyhudi.features.catalogs.sql_store import SqlStore
from pyhudi.format.properties import redact_secret
from pyhudi.storage.config_file import nearest, parse_section, read_toml, resolved
from pyhudi.storage.uris import without_secrets

_FILE_VARIABLE = "PYHUDI_CONFIG"
_PREFIX = "PYHUDI_CATALOG__"
_FILE = ".pyhudi.toml"
_SECTIONS = ("catalog", "profile")


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """Where a catalog is stored.

    Attributes:
        name: Name of the catalog, the first part of `lake.db.trips`.
        uri: `sqlite:////folder/catalog.db`, `postgresql://host/database`, `thrift://host:port` or `glue:`.
        warehouse: Folder for tables without location.
        profile: Profile with storage options of tables that name no other.
        user: User of the database.
        password: Password of the database.
        options: `hoodie.*` options of catalog sync, for Hive metastore and Glue.
    """

    name: str
    uri: str
    warehouse: str | None = None
    profile: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def open_store(self) -> CatalogStore:
        """Return the store. Raises InvalidRequest for an unknown scheme, or if a package is not installed."""
        scheme = self.uri.partition(":")[0]
        if scheme in ("sqlite", "postgresql", "postgres"):
            return SqlStore(self.name, self.uri, self.user, self.password)
        if scheme in ("thrift", "glue"):
            return MetastoreStore(self.uri, self.options)
        raise InvalidRequest(
            f"catalog {self.name} has the URI {self.uri}: it must begin with sqlite:, postgresql:, thrift: or glue:"
        )


def parse_settings(name: str, values: Mapping[str, object]) -> CatalogSettings:
    """Build the settings of a catalog. Raises InvalidRequest for an unknown key, and for a secret in clear."""
    where = f"catalog {check_name('catalog', name)}"
    check_references({key: value for key, value in values.items() if key != "options"}, where, ("env", "file"))
    options = values.get("options")
    if isinstance(options, Mapping):
        check_references(options, f"options of {where}", ("env", "file"))
    return parse_section(CatalogSettings, values, where, {"name": name})


def configured_settings(name: str) -> CatalogSettings | None:
    """Return the settings of a catalog of the configuration; None if it has no catalog of that name."""
    document, _ = _configuration()
    sections = document["catalog"]
    name = next((key for key in sections if key.lower() == name.lower()), name.lower())
    values = dict(sections.get(name, {}))
    prefix = f"{_PREFIX}{name.upper()}__"
    values |= {variable[len(prefix) :].lower(): {"env": variable} for variable in os.environ if variable.startswith(prefix)}
    return parse_settings(name, values) if values else None


def configured_names() -> list[str]:
    """Return the names of the catalogs of the configuration, sorted."""
    variables = {name[len(_PREFIX) :].partition("__")[0].lower() for name in os.environ if name.startswith(_PREFIX)}
    return sorted(variables | {name.lower() for name in _configuration()[0]["catalog"]})


def profile_options(name: str) -> dict[str, str]:
    """Return the storage options of a profile, with values in place of references. Raises InvalidRequest if there is none."""
    document, where = _configuration()
    profiles = document["profile"]
    if name not in profiles:
        raise InvalidRequest(f"there is no section [profile.{name}] in {where}{nearest(name, profiles)}")
    check_references(profiles[name], f"profile {name} of {where}", ("env", "file"))
    return {key: str(resolved(value)) for key, value in profiles[name].items()}


def check_references(values: Mapping[str, object], where: str, allowed: tuple[str, ...] = ("env",)) -> None:
    """Raise InvalidRequest for a secret in clear. allowed: keys of references."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            if len(value) != 1 or next(iter(value)) not in allowed or not all(isinstance(name, str) for name in value.values()):
                raise InvalidRequest(f"{where}: {key} is no reference: its only key must be {' or '.join(allowed)}, with a text")
        elif isinstance(value, str) and _holds_secret(key, value):
            raise InvalidRequest(f'{where}: {key} may hold a secret, which is not stored: refer to a variable, {{"env": "NAME"}}')


def _holds_secret(key: str, value: str) -> bool:
    """Whether an option is a secret by its name, or its value has one: in a URL, in JSON, or as name=value."""
    names = [part.partition("=")[0] for part in re.split("[;&?]", value) if "=" in part]
    names += [value] if value.lstrip().startswith("{") else []
    return without_secrets(value) != value or any(redact_secret(name, "x") != "x" for name in (key, *names))


def _configuration() -> tuple[dict[str, dict[str, Any]], str]:
    """The sections of the configuration, and its file for messages."""
    named = os.environ.get(_FILE_VARIABLE)
    files = (named,) if named else (os.path.abspath(_FILE), os.path.join(os.path.expanduser("~"), _FILE))
    path = named or next((file for file in files if os.path.isfile(file)), None)
    document = {} if path is None else read_toml(path, "configuration")
    where = path or " or ".join(files)
    for section in document:
        if section not in _SECTIONS:
            raise InvalidRequest(f"{where} has the unknown section {section!r}{nearest(section, _SECTIONS)}")
    for section_type in _SECTIONS:
        parts = document.setdefault(section_type, {})
        if not isinstance(parts, dict) or not all(isinstance(part, dict) for part in parts.values()):
            raise InvalidRequest(f"{where}: {section_type} must be sections [{section_type}.NAME]")
    return document, where


def resolved_storage_options(options: Mapping[str, Reference], profile: str | None) -> dict[str, str]:
    """Storage options of a table: those of its profile, replaced by its own, with values in place of references."""
    shared = {} if profile is None else profile_options(profile)
    return shared | {key: str(resolved(value)) for key, value in options.items()}
