"""Write docs/reference/options.md: how each Hudi option is handled, from the option registry.

`python -m scripts.options_page` writes the page; tests/test_docs.py fails when it is out of date.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyhudi.options.declaration import OLDEST_VERSION, Option
from pyhudi.options.no_effect_options import REASONS
from pyhudi.options.refused_options import REFUSALS
from pyhudi.options.supported import FLINK, MODULES, SUPPORTED

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "options.md"

_HEAD = """# Options

Options keep Hudi's names, defaults and meanings, for tables of versions 8 and 9 alike unless a row states otherwise.
Each option is in one of these classes:

| class | what happens |
| --- | --- |
| [Supported](#supported) | PyHudi honours it |
| [No effect](#no-effect) | accepted; the table comes out the same for every value |
| [Refused](#refused) | the call raises `Unsupported`, unless the value is neutral |
| [Flink connector names](#flink-connector-names) | refused, with the name to use here |
| unknown | refused with the nearest names if it begins with `hoodie.` or `pyhudi.`, else a warning |

Keys that begin with `hoodie.datasource.write.commitmeta.key.prefix` go into the commit metadata, and keys that begin
with `spark.` are Spark's; neither gives a warning.

An option passed to one call (`table.upsert(rows, options=...)`, `pyhudi compact TABLE -O key=value`) must affect that
call. Otherwise the call is refused, and the error lists the calls that use the option. `Table(path, options=...)`,
`hs.write`, `hs.read`, `format("pyhudi")` and `StreamSink` accept one mapping for a whole job, in which options of other
calls may appear. Options that choose the rows of a read or the kind of write are marked in the column `chooses`; a call
that does not use such an option refuses it even there, unless its value is the default.

Every option of Hudi 1.0.2, 1.1.1 and 1.2.0 is in one of the first three classes. This page is generated from the
declarations in `pyhudi/options`.

"""


def render() -> str:
    """The page's text."""
    lines = [
        _HEAD + "## Supported\n",
        "The column `where` names the part that reads an option. A table property is stored at creation under its name, or the",
        "one given; a version is the first table version that has it. The column `origin` is `table` where a table may store a",
        "default for all its users; other stored values apply only to",
        "[callers who trust the table](../untrusted-tables.md).\n",
        "| option | where | default | meaning | origin | chooses | other spellings |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for key, option in sorted(SUPPORTED.items()):
        default = "" if option.default is None else f"`{option.default}`"
        chosen = {"read": "rows of a read", "write": "kind of write"}.get(option.chooses, "")
        aliases = ", ".join(f"`{alias}`" for alias in option.aliases)
        lines.append(
            f"| `{key}` | {_place(option)} | {default} | {option.description} | {option.origin} | {chosen} | {aliases} |"
        )
    lines += [
        "\n## No effect\n",
        "Valid in Hudi. The table comes out the same for every value. `*` is any rest of a name.\n",
        "| options | why |",
        "| --- | --- |",
    ]
    lines += [f"| {_list(names)} | {reason} |" for reason, names in REASONS.items()]
    lines += [
        "\n## Refused\n",
        "Valid in Hudi, not supported by PyHudi: the call is refused, unless the value is one of the last column, or empty",
        "where the default is empty.\n",
        "| options | why | may be set to |",
        "| --- | --- | --- |",
    ]
    for refusal in REFUSALS:
        lines.append(f"| {_list(refusal.names)} | {refusal.reason} | {_list(value for value in refusal.neutral if value)} |")
    lines += [
        "\n## Flink connector names\n",
        "Refused. The second column is the name to use instead.\n",
        "| option | use instead |",
        "| --- | --- |",
    ]
    lines += [f"| `{key}` | {f'`{ours}`' if ours else ''} |" for key, ours in sorted(FLINK.items())]
    return "\n".join(lines) + "\n"


def _place(option: Option) -> str:
    if not option.stored_as:
        if option.key.startswith("pyhudi.spark."):
            return "Spark"
        return next(subject for subject, module in MODULES.items() if option in vars(module).values())
    name = "" if option.stored_as == option.key else f" `{option.stored_as}`"
    return f"table property{name}" + (f", version {option.since}" if option.since > OLDEST_VERSION else "")


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(render())
