"""The table of operators against the schemas that torch registers."""

import re

import torch

_NAMES = {"number": "Scalar"}


def _kind(type_text):
    if match := re.fullmatch(r"Optional\[(.*)\]", type_text):
        return _kind(match[1]) + "?"
    if match := re.fullmatch(r"List\[(.*)\]", type_text):
        return _kind(match[1]) + "[]"
    return _NAMES.get(type_text, type_text)


def test_every_aten_row_is_torchs_schema(core):
    operators = core.operators()
    aten = {name: row for name, row in operators.items() if name.startswith("aten.")}
    assert len(aten) > 200
    for name, (arguments, num_results) in aten.items():
        _, packet, overload = name.split(".")
        schema = getattr(getattr(torch.ops.aten, packet), overload)._schema
        assert arguments == [(a.name, _kind(str(a.real_type))) for a in schema.arguments], name
        assert num_results == len(schema.returns), name
