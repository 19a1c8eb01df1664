"""HTTP requests to services around a table. No redirect is followed: it would send credentials to another host."""

from __future__ import annotations

from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pyhudi.errors import StorageUnavailable


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_OPENER = build_opener(_NoRedirects)


def send_request(
    method: str,
    url: str,
    *,
    failure: str,
    timeout_s: float,
    headers: Mapping[str, str],
    body: bytes | None = None,
    limit_bytes: int = 0,
) -> tuple[int, bytes]:
    """Send a request and return the status of the answer, with its content up to a limit.

    Args:
        method: GET, POST or DELETE.
        url: URL with its query.
        failure: Message of the error if there is no answer, without secrets.
        timeout_s: Timeout of the connection, and of each read.
        headers: Headers of the request.
        body: Content of the request.
        limit_bytes: Maximum number of bytes to read from the answer.

    Raises:
        StorageUnavailable: There is no answer. The message has neither the URL nor the headers, but the kind of failure.
    """
    try:
        with _OPENER.open(Request(url, body, dict(headers), method=method), timeout=timeout_s) as answer:
            return answer.status, answer.read(limit_bytes) if limit_bytes else b""
    except HTTPError as error:
        error.close()
        return error.code, b""
    except (URLError, HTTPException, OSError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise StorageUnavailable(f"{failure} ({type(reason).__name__})") from None
