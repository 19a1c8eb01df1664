"""A table made, changed, read and shown by an installed PyHudi: `python -I scripts/dist_trial.py PYHUDI TABLE`.

PYHUDI is the installed command; TABLE a folder that is not there yet.  With `-I` nothing but the installed package is found.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

import pyhudi as hp


def main(command: str, folder: str) -> None:
    """Raises where something is not as it should be."""
    assert "site-packages" in Path(hp.__file__).parts, f"pyhudi comes from {hp.__file__}"
    table = hp.Table.create(folder, record_key="id", partition_by="city", ordering="ts", table_type="mor")
    table.upsert(pa.table({"id": ["a", "b"], "city": ["sf", "ny"], "ts": [1, 1], "fare": [1.0, 2.0]}))
    table.upsert(pa.table({"id": ["b"], "city": ["ny"], "ts": [2], "fare": [3.0]}))
    table.compact()
    assert table.scan(["id", "fare"], filter="fare > 2").to_arrow().to_pylist() == [{"id": "b", "fare": 3.0}]
    assert table.validate().ok
    version = subprocess.run([command, "--version"], check=True, capture_output=True, text=True).stdout
    assert hp.__version__ in version, version
    subprocess.run([command, "show", folder], check=True, stdout=subprocess.DEVNULL)
    print(f"Python {platform.python_version()}, pyarrow {pa.__version__}: a table was made, compacted, read and shown")


if __name__ == "__main__":
    main(*sys.argv[1:])
