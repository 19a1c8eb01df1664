"""The record schema is that of Hudi 1.0.2."""

from __future__ import annotations

import hashlib
import json

from pyhudi.metadata_table.codecs.metadata_schema import COMMIT_SCHEMA, RECORD_SCHEMA

# Of the schema in a base file that Hudi 1.0.2 wrote, without its comments (doc) and blanks.
REAL_DIGEST = "4800127cfa856f8a4440cbc7e7310e875719e790f01b9bba028bf4a97d90d649"


def test_record_schema_equals_that_of_hudi() -> None:
    assert hashlib.sha256(RECORD_SCHEMA.encode()).hexdigest() == REAL_DIGEST


def test_commits_carry_it_without_meta_fields() -> None:
    fields = json.loads(RECORD_SCHEMA)["fields"]
    assert json.loads(COMMIT_SCHEMA) == json.loads(RECORD_SCHEMA) | {"fields": fields[5:]}
    assert [field["name"] for field in fields[4:7]] == ["_hoodie_file_name", "key", "type"]
