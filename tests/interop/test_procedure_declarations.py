"""Procedures have the arguments, positions, defaults and columns that Apache Hudi declares."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pyhudi.features.procedures import PROCEDURES, positions
from pyhudi.features.procedures.procedure import LOCATING
from tests.interop.oracle import ApacheHudi

pytestmark = pytest.mark.interop

_DECLARED = """
known = jvm.org.apache.spark.sql.hudi.command.procedures.HoodieProcedures
names, names_left = [], known.procedures().keys().iterator()
while names_left.hasNext():
    names.append(names_left.next())
result = {}
for name in names:
    procedure = known.newBuilder(name).build()
    parameters = [(p.index(), p.name(), str(p.default()), p.required()) for p in procedure.parameters()]
    columns = [(f.name(), f.dataType().simpleString()) for f in procedure.outputType().fields()]
    result[name] = [sorted(parameters), columns]
"""
_TYPES = {pa.string(): "string", pa.int32(): "int", pa.int64(): "bigint", pa.float64(): "double", pa.bool_(): "boolean"}


def test_procedures_are_those_that_hudi_declares(hudi: ApacheHudi) -> None:
    declared: dict[str, Any] = hudi.run(_DECLARED)
    common = sorted(PROCEDURES.keys() & declared.keys())
    assert len(common) > 50
    for name in common:
        procedure, (parameters, columns) = PROCEDURES[name], declared[name]
        assert [[field.name, _TYPES[field.type]] for field in procedure.output] == [list(column) for column in columns], name
        theirs = [parameter[1] for parameter in parameters]
        # PyHudi has `path` everywhere, and a few arguments of later releases behind those of 1.0.2.
        assert all(mine == other for mine, other in zip(positions(name) or (), theirs, strict=False)), (name, theirs)
        known = {parameter.name: parameter for parameter in procedure.parameters}
        for _, argument, default, is_required in parameters:
            if argument not in LOCATING:
                assert (str(known[argument].default), known[argument].required) == (default, is_required), (name, argument)
