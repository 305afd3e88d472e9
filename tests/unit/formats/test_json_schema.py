"""`JsonSchema()`: the frame, and behind it what `Json()` decodes, against the oracle of JSON."""

from tests.support.format_cases import Answer, FormatCase
from tests.unit.formats import test_json
from tidemark import formats
from tidemark.formats.registry_format import frame
from tidemark.model.schema.registry_schemas import Schemas, SchemaText

BOUND = formats.JsonSchema().bind_schemas(
    Schemas({7: SchemaText(type="JSON", text='{"type": "object"}'), 6: SchemaText(type="AVRO", text='"string"')})
)


def oracle(value: bytes) -> Answer:
    if len(value) < 5 or value[0]:
        return "malformed_json: no frame"
    id = int.from_bytes(value[1:5])
    if id == 6:
        return "schema_mismatch"
    return test_json.CASE.oracle(value[5:]) if id == 7 else f"unknown_schema: {id}"


CASE = FormatCase(
    format=BOUND,
    record=test_json.CASE.record,
    fields=test_json.CASE.fields,
    oracle=oracle,
    bytes=(*(frame(7, value) for value in test_json.CASE.bytes), b"{}", b"\0\0\0\0", frame(8, b"{}"), frame(6, b"{}")),
)


def test_people_see_the_json() -> None:
    assert BOUND.render(frame(7, b'{"a": 1}')) == b'{"a": 1}'
    assert BOUND.render(b'{"a": 1}') == b'{"a": 1}'
