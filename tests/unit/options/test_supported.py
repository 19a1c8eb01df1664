from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest

import pyhudi
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.log.cdc_blocks import CdcMode
from pyhudi.operations.write.write_settings import WriteOperation
from pyhudi.options import service_options, table_options, write_options
from pyhudi.options.declaration import Option, Options
from pyhudi.options.no_effect_options import NO_OP
from pyhudi.options.refused_options import REFUSED
from pyhudi.options.supported import FORWARDED, SUPPORTED, parse_options
from pyhudi.options.table_options import OPTION_PREFIX
from pyhudi.planning.compaction import CompactionTrigger
from pyhudi.planning.record_placement import SizingSettings
from pyhudi.records.schema_evolution import SchemaMode
from pyhudi.records.timestamp_coercion import ZonelessTimestamps
from pyhudi.table.table_config import TableType
from pyhudi.tasks.base_file_writer import FileSettings


@pytest.fixture(autouse=True)
def no_unexpected_warning() -> None:
    warnings.simplefilter("error")


def test_each_key_is_in_one_class_and_its_default_is_legal() -> None:
    spelled = [key for name, option in SUPPORTED.items() for key in (name, *option.aliases)]
    assert len(set(spelled)) == len(spelled)
    assert not set(spelled) & NO_OP.keys()
    assert not set(spelled) & REFUSED.keys()
    assert not NO_OP.keys() & REFUSED.keys()
    for key, option in SUPPORTED.items():
        if option.default is not None:
            assert parse_options({key: option.default}).explicit(key) == option.default
    assert all(reason for reason in NO_OP.values())
    assert all(refusal.reason and refusal.neutral for refusal in REFUSED.values())
    FileSettings.of(Options(()))
    SizingSettings.of(Options(()))


def test_values_become_text_and_back() -> None:
    options = parse_options(
        {
            "hoodie.combine.before.insert": True,
            "hoodie.parquet.max.file.size": 1024,
            "hoodie.index.bloom.fpp": "1e-6",
            "hoodie.datasource.write.recordkey.field": ["a", "b"],
            "hoodie.table.name": None,
            "hoodie.index.type": "global_bloom",
        }
    )
    assert options.flag("hoodie.combine.before.insert")
    assert options.integer("hoodie.parquet.max.file.size") == 1024
    assert options.number("hoodie.index.bloom.fpp") == 1e-6
    assert options.names("hoodie.datasource.write.recordkey.field") == ("a", "b")
    assert options.explicit("hoodie.table.name") is None
    assert options.value_or_default("hoodie.index.type") == "GLOBAL_BLOOM"
    assert options.text("hoodie.write.lock.provider") is None
    with pytest.raises(InvalidRequest, match=r"hoodie\.table\.name is required"):
        options.value_or_default("hoodie.table.name")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("hoodie.combine.before.insert", "yes", "neither true nor false"),
        ("hoodie.combine.before.insert", "", "neither true nor false"),
        ("hoodie.parquet.max.file.size", "1 MB", "not a whole number"),
        ("hoodie.parquet.max.file.size", "1.5", "not a whole number"),
        ("hoodie.parquet.max.file.size", "1_000", "not a whole number"),
        ("hoodie.parquet.max.file.size", "9" * 30, "not a whole number"),
        ("hoodie.index.bloom.fpp", "nan", "not a number"),
        ("hoodie.index.bloom.fpp", "inf", "not a number"),
        ("hoodie.index.bloom.fpp", "", "not a number"),
        ("hoodie.index.type", "SIMPEL", "none of SIMPLE"),
        ("hoodie.write.table.version", "6", "none of 8, 9"),
    ],
)
def test_illegal_values(key: str, value: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        parse_options({key: value})
    assert key in str(caught.value)


def test_spellings_of_one_option() -> None:
    assert parse_options({"hoodie.table.precombine.field": "ts"}).text("hoodie.datasource.write.precombine.field") == "ts"
    same = {"hoodie.table.precombine.field": "ts", "hoodie.datasource.write.precombine.field": "ts"}
    assert parse_options(same).text("hoodie.datasource.write.precombine.field") == "ts"
    with pytest.raises(
        InvalidRequest, match=r"hoodie\.table\.precombine\.field=ts and .*are spellings of one option and have different values"
    ):
        parse_options({**same, "hoodie.datasource.write.precombine.field": "at"})
    # A later layer wins, regardless of its spelling of the option.
    layered = parse_options({"hoodie.datasource.write.precombine.field": "at"}, {"preCombineField": "ts"}, None)
    assert layered.text("hoodie.datasource.write.precombine.field") == "ts"


def test_refused_and_moot_options() -> None:
    for key, refusal in REFUSED.items():
        for value in refusal.neutral:
            assert parse_options({key: value}) == Options(())
        with pytest.raises(Unsupported, match=re.escape(refusal.reason)) as caught:
            parse_options({key: "com.example.Something"})
        assert key in str(caught.value)
    for key in NO_OP:
        assert parse_options({key: "anything"}) == Options(())


def test_a_key_of_another_program_is_warned_about() -> None:
    with pytest.warns(UserWarning, match="option hoodi.index.type is unknown and has no effect; did you mean") as caught:
        parse_options({"hoodi.index.type": "x"})
    assert Path(caught[0].filename) == Path(__file__)
    for key in ("mode", "commit.note.batch", "fs.s3a.access.key"):
        with pytest.warns(UserWarning, match=f"option {re.escape(key)} is unknown and has no effect"):
            parse_options({key: "x"})
    # The metadata of commits and the options of Spark's session belong to the caller.
    assert parse_options({"_batch": 7, "spark.x": "y"}).extra == (("_batch", "7"), ("spark.x", "y"))
    for prefix in FORWARDED:
        if prefix != OPTION_PREFIX:
            assert parse_options({prefix + "anything": "x"}).with_prefix(prefix) == {prefix + "anything": "x"}


def test_options_of_the_metadata_of_commits_are_known_by_their_prefix() -> None:
    prefix = {"hoodie.datasource.write.commitmeta.key.prefix": "note."}
    assert parse_options({"note.batch": 7, **prefix}).extra == (("note.batch", "7"),)
    assert parse_options({"note.batch": 7}, base_options=parse_options(prefix)).extra == (("note.batch", "7"),)
    for nowhere in ({"_batch": 7, **prefix}, {"_batch": 7, "hoodie.datasource.write.commitmeta.key.prefix": ""}):
        with pytest.warns(UserWarning, match="option _batch is unknown and has no effect"):
            parse_options(nowhere)


def test_merged() -> None:
    options = parse_options({"hoodie.table.name": "a", "_x": "1"})
    merged = options.merged({"hoodie.table.name": "b"})
    assert (merged.explicit("hoodie.table.name"), merged.extra) == ("b", options.extra)
    assert options.explicit("hoodie.table.name") == "a"


@pytest.mark.parametrize("value", [0, -1])
def test_positive(value: int) -> None:
    with pytest.raises(InvalidRequest, match="must be positive"):
        parse_options({"hoodie.parquet.block.size": value})


PACKAGE = Path(pyhudi.__file__).parent
# `hoodie.properties` is a file, and `hoodie.vector.columns` a key of footers.
NAME_OF_HUDI = re.compile(r"(?<![\w.])hoodie\.(?!properties\b|vector\.columns\b)[a-z_]+")


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module, except docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.lineno, node.value


def test_names_of_options_are_spelled_in_the_package_of_options_only() -> None:
    elsewhere = [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent.name != "options"]
    assert len(elsewhere) > 300
    assert not [
        f"{path.relative_to(PACKAGE)}:{line} {text!r}"
        for path in elsewhere
        for line, text in literals(path)
        if NAME_OF_HUDI.search(text)
    ]


def test_each_name_is_spelled_once() -> None:
    spelled = Counter(
        text for path in PACKAGE.glob("options/*.py") for _, text in literals(path) if re.fullmatch(r"_?hoodie(\.\w+)+", text)
    )
    assert not [text for text, count in spelled.items() if count > 1]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (write_options.OPERATION, WriteOperation),
        (write_options.SCHEMA_MODE, SchemaMode),
        (service_options.COMPACTION_TRIGGER, CompactionTrigger),
        (table_options.WITHOUT_ZONE, ZonelessTimestamps),
        (table_options.TABLE_TYPE, TableType),
        (table_options.CHANGES_MODE, CdcMode),
    ],
)
def test_enumerations_have_the_words_that_their_options_allow(option: Option, words: type[StrEnum]) -> None:
    assert option.kind == tuple(words)
