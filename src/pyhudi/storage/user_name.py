"""Who runs this process, as servers are told."""

from __future__ import annotations

import getpass


def user_name() -> str:
    """The user's name; `unknown` in a container whose user has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
