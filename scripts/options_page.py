"""Write docs/migrate-from-hudi.md: what becomes of each Hudi option, from the option registry itself.

`python -m scripts.options_page` writes the page; tests/test_docs.py says when it is out of date.
"""

from __future__ import annotations

# ruff: noqa: E501 - rows of a Markdown table cannot be broken
from pathlib import Path

from pyhudi.options import FLINK, HONOURED, MOOT, REFUSED

PAGE = Path(__file__).resolve().parents[1] / "docs" / "migrate-from-hudi.md"

_HEAD = """# Moving from the Hudi bundle

| Hudi | PyHudi |
| --- | --- |
| bundle jar, `spark.serializer`, `spark.sql.extensions`, catalog | `pip install "pyhudi[spark]"` |
| `df.write.format("hudi").options(**o).mode("append").save(path)` | `hs.write(df, path, mode="append", options=o)` |
| `.mode("overwrite")`: deletes the table, then makes one from the options | `mode="overwrite"`: one commit replaces rows and columns; options that would make another table are refused |
| `spark.read.format("hudi").options(**o).load(path)` | `hs.read(spark, path, options=o)`, or `hs.enable(spark, alias="hudi")` and unchanged |
| `call run_compaction(op => "run", table => "db.trips")` | `hs.call(spark, "run_compaction", op="run", table="db.trips")`: [the procedures](procedures.md), by the same names; or `Table(path).compact()` and the other verbs |
| a table of Hudi 1.1 or 1.2 (version 9), or of version 8 or 6 that they wrote | read as it stands, by either engine, indexes and all; written where the version is 8 or 9; `Table.upgrade(to=9)` and `Table.downgrade(to=8)` take it from one to the other, never unasked |

Options keep their names, and mean the same for tables of every version that is written, 8 and 9, but where a row says so. Each key is in one of the classes below; a key that stands nowhere gives a warning with the nearest known name, but for those that begin with `hoodie.datasource.write.commitmeta.key.prefix` (they go into the metadata of the commit) and those of Spark (`spark.`).

An option that is given with a call (`table.upsert(rows, options=...)`, `pyhudi compact TABLE -O key=value`) has to act on it, or the call is refused and names the calls on which it acts. `Table(path, options=...)`, `hs.write`, `hs.read`, `format("pyhudi")` and `StreamSink` take the one mapping that a job hands to everything: what tunes other calls may stand there. What chooses the rows of a read, or what a write does, is marked below; where a call does not go by it, it is refused there too, unless its value is the default.

"""


def render() -> str:
    """The page's text."""
    lines = [
        _HEAD + "## Honoured\n",
        "| option | default | meaning | chooses | other spellings |",
        "| --- | --- | --- | --- | --- |",
    ]
    for key, option in sorted(HONOURED.items()):
        default = "" if option.default is None else f"`{option.default}`"
        chosen = {"read": "the rows of a read", "write": "what a write does"}.get(option.chooses, "")
        aliases = ", ".join(f"`{alias}`" for alias in option.aliases)
        lines.append(f"| `{key}` | {default} | {option.meaning} | {chosen} | {aliases} |")
    lines += [
        "\n## Without effect\n",
        "Legal, and whatever they say, the table comes out the same.\n",
        "| option | why |",
        "| --- | --- |",
    ]
    lines += [f"| `{key}` | {reason} |" for key, reason in sorted(MOOT.items())]
    lines += ["\n## Refused\n", "Legal Hudi that PyHudi does not do: the write is refused, unless the value asks for nothing.\n"]
    lines += ["| option | why | may be set to |", "| --- | --- | --- |"]
    for key, (reason, neutral) in sorted(REFUSED.items()):
        lines.append(f"| `{key}` | {reason} | {', '.join(f'`{value}`' for value in neutral if value)} |")
    lines += [
        "\n## Names of the Flink connector\n",
        "Refused, with the name to use here.\n",
        "| option | here |",
        "| --- | --- |",
    ]
    lines += [f"| `{key}` | {f'`{ours}`' if ours else ''} |" for key, ours in sorted(FLINK.items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render())
