"""Catalogs and profiles of the configuration file and the environment.

    # ~/.pyhudi.toml, or the file that PYHUDI_CONFIG names (see `storage.user_configuration`)
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

from pyhudi.errors import InvalidRequest
from pyhudi.features.catalogs.catalog_store import CatalogStore, Reference, check_name
from pyhudi.features.catalogs.metastore_store import MetastoreStore
from pyhudi.features.catalogs.sql_store import SqlStore
from pyhudi.format.properties import redact_secret
from pyhudi.options.supported import warn_caller
from pyhudi.storage.config_file import nearest, parse_section, resolved
from pyhudi.storage.uris import parse_uri, without_secrets
from pyhudi.storage.user_configuration import UserConfiguration, load_configuration

_PREFIX = "PYHUDI_CATALOG__"


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
        is_local: The working directory defines the catalog, so its tables are local and get no storage options.
    """

    name: str
    uri: str
    warehouse: str | None = None
    profile: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_local: bool = False

    def storage_options(self, location: str, options: Mapping[str, Reference], profile: str | None) -> dict[str, str]:
        """Return the storage options of a table, with values in place of references.

        Raises:
            InvalidRequest: The table refers to files, variables or hosts, and the working directory defines the catalog.
        """
        named = profile or self.profile
        if self.is_local and (options or named or parse_uri(location).scheme != "file"):
            raise InvalidRequest(
                f"the working directory defines catalog {self.name}, so its tables must be local and have no storage options, "
                f"unlike {location}. If the catalog is yours, define it in ~/.pyhudi.toml"
            )
        return resolved_storage_options(options, named)

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


def parse_settings(name: str, values: Mapping[str, object], *, is_local: bool = False) -> CatalogSettings:
    """Build the settings of a catalog. Raises InvalidRequest for an unknown key, and for a secret in clear."""
    where = f"catalog {check_name('catalog', name)}"
    check_references({key: value for key, value in values.items() if key != "options"}, where, ("env", "file"))
    options = values.get("options")
    if isinstance(options, Mapping):
        check_references(options, f"options of {where}", ("env", "file"))
    return parse_section(CatalogSettings, values, where, {"name": name, "is_local": is_local})


def configured_settings(name: str) -> CatalogSettings | None:
    """Return the settings of a catalog of the configuration; None if it has no catalog of that name."""
    configuration = load_configuration()
    sections = configuration.catalogs
    prefix = f"{_PREFIX}{name.upper()}__"
    variables = {variable[len(prefix) :].lower(): {"env": variable} for variable in os.environ if variable.startswith(prefix)}
    is_local = name.lower() in configuration.local
    if is_local and variables:
        # The environment defines the catalog, and is the user's own.
        return parse_settings(name.lower(), variables)
    name = next((key for key in sections if key.lower() == name.lower()), name.lower())
    values = {**sections.get(name, {}), **variables}
    if not values:
        _warn_if_ignored(configuration)
        return None
    return parse_settings(name, values, is_local=is_local)


def configured_names() -> list[str]:
    """Return the names of the catalogs of the configuration, sorted."""
    variables = {name[len(_PREFIX) :].partition("__")[0].lower() for name in os.environ if name.startswith(_PREFIX)}
    return sorted(variables | {name.lower() for name in load_configuration().catalogs})


def profile_options(name: str) -> dict[str, str]:
    """Return the storage options of a profile, with values in place of references. Raises InvalidRequest if there is none."""
    configuration = load_configuration()
    profiles, where = configuration.profiles, configuration.location
    if name not in profiles:
        _warn_if_ignored(configuration)
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


def _warn_if_ignored(configuration: UserConfiguration) -> None:
    """Warn about a file of the working directory that is not used, where a name is missing."""
    if configuration.ignored is not None:
        warn_caller(configuration.ignored)


def resolved_storage_options(options: Mapping[str, Reference], profile: str | None) -> dict[str, str]:
    """Storage options of a table: those of its profile, replaced by its own, with values in place of references."""
    shared = {} if profile is None else profile_options(profile)
    return shared | {key: str(resolved(value)) for key, value in options.items()}
