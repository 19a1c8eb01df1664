"""Symbolic links below the root of a local storage: which may be followed.

Links may be made by others, for example in a table that was downloaded. Reads follow them. Changes do not leave the
root: a file whose folder is linked to another place is neither written nor deleted. The storage option `link_roots`
lists folders (separated as in PATH) into which links may lead; with it, reads too follow no other link that leaves the
root.
"""

from __future__ import annotations

import os
from pathlib import PurePath

from pyhudi.errors import InvalidRequest


def parse_link_roots(text: str | None) -> tuple[str, ...] | None:
    """Return the folders of the storage option `link_roots`. Raises InvalidRequest for a relative one."""
    if text is None:
        return None
    roots = tuple(root for root in text.split(os.pathsep) if root)
    for root in roots:
        if not os.path.isabs(root):
            raise InvalidRequest(f"storage option link_roots={text!r}: {root!r} is not an absolute path")
    return roots


def check_links(operation: str, full: str, followed: str, root: str, link_roots: tuple[str, ...] | None) -> None:
    """Check that links below the root lead into the root or into a link root.

    Args:
        operation: What is done, for the error.
        full: Full path of the file or folder, for the error.
        followed: Full path whose links are followed, at the root or below it.
        root: Root of the storage.
        link_roots: Other folders into which links may lead.

    Raises:
        InvalidRequest: A link leads elsewhere.
    """
    link = root
    for part in PurePath(followed).relative_to(root).parts if len(followed) > len(root) else ():
        link = os.path.join(link, part)
        if os.path.islink(link):
            break
    else:
        return
    target = PurePath(os.path.realpath(followed))
    if not any(target.is_relative_to(os.path.realpath(folder)) for folder in (root, *(link_roots or ()))):
        raise InvalidRequest(
            f"cannot {operation} {full}: {link} is a symbolic link that leads out of {root}, to {target}. If you made it, "
            f"open the table with the storage option link_roots={os.path.dirname(target)!r}"
        )
