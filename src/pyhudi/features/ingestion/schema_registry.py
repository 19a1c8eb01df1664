"""Client of a schema registry with the HTTP interface of Confluent's."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote

from pyhudi.errors import CorruptData, InvalidRequest, StorageUnavailable
from pyhudi.storage.http_client import send_request
from pyhudi.storage.uris import without_secrets

_TIMEOUT_S = 30
_MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class SchemaRegistry:
    """Avro schemas by subject and by id.

    Attributes:
        url: Address of the registry.
        user: User name for basic authentication.
        password: Password.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @cached_property
    def _by_id(self) -> dict[int, str]:
        return {}

    def latest(self, subject: str) -> str:
        """Return the newest schema of a subject."""
        return self._schema(f"/subjects/{quote(subject, safe='')}/versions/latest")

    def by_id(self, number: int) -> str:
        """Return the schema of an id, which never changes."""
        if number not in self._by_id:
            self._by_id[number] = self._schema(f"/schemas/ids/{number}")
        return self._by_id[number]

    def _schema(self, path: str) -> str:
        document = self._get(path)
        if document.get("schemaType", "AVRO") != "AVRO":
            raise InvalidRequest(f"the schema at {self._shown}{path} is of type {document['schemaType']}: only AVRO is supported")
        schema = document.get("schema")
        if not isinstance(schema, str):
            raise CorruptData(f"the schema registry returned no schema at {self._shown}{path}")
        return schema

    @property
    def _shown(self) -> str:
        return without_secrets(self.url.rstrip("/"))

    def _get(self, path: str) -> dict[str, Any]:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if self.user is not None:
            token = base64.b64encode(f"{self.user}:{self.password or ''}".encode()).decode()
            headers["Authorization"] = f"Basic {token}"
        status, content = send_request(
            "GET",
            self.url.rstrip("/") + path,
            failure=f"the schema registry at {self._shown} did not respond",
            timeout_s=_TIMEOUT_S,
            headers=headers,
            limit_bytes=_MAX_BYTES,
        )
        if status >= 300:
            error_class = StorageUnavailable if status >= 500 or status == 429 else InvalidRequest
            raise error_class(f"the schema registry answered {status} to {self._shown}{path}")
        try:
            document = json.loads(content)
        except ValueError as error:
            raise CorruptData(f"the schema registry returned no JSON at {self._shown}{path}") from error
        if not isinstance(document, dict):
            raise CorruptData(f"the schema registry returned no object at {self._shown}{path}")
        return document
