"""Strict JSON decoding in Spark SQL, for `formats.Json` and for message keys; bad text gives a reason, not an error.

`from_json` is lax: a number becomes a string, one bad field becomes null, and trailing text passes. So each value is
parsed once into a VARIANT, which keeps the JSON types, and every declared field is compared with its declaration.
Undeclared fields are ignored, so adding a field is compatible. No Python function runs per record.
"""

from dataclasses import dataclass, field

from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.core.types import FieldType

TEXT = "CAST(value AS STRING)"
# Once escaped backslashes and whole surrogate pairs are removed, any surrogate escape that remains is half a pair.
_PAIRS = r"(\\\\)|(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
_HALF = r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
_ZONE = "(Z|[+-][0-9]{2}(:?[0-9]{2})?)?"
_TIMESTAMP = f"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.][0-9]{{1,9}})?)?{_ZONE}"
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_BASE64 = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_DECIMAL = "-?[0-9]+([.][0-9]+)?"
_UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_TIME = "[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?"
_DAY = "([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9].*)?"
_FORMATS = {
    "timestamp": _TIMESTAMP, "date": _DATE, "bytes": _BASE64, "decimal": _DECIMAL, "uuid": _UUID, "time": _TIME,
}  # fmt: skip


def parsed_sql(text: str = TEXT) -> str:
    """Returns the variant of a JSON text in an envelope: `$[0]` is the value, if `is_sealed_sql` holds.

    A parser stops after the first JSON value. So the text is wrapped in an array, followed by a seal that depends on
    its bytes; trailing text separates the two, and the array no longer has exactly these two elements.
    """
    return f"""try_parse_json(concat('[', {text}, ',"', {_seal(text)}, '"]'))"""


def is_sealed_sql(parsed: str, text: str = TEXT) -> str:
    """Returns the condition that a parsed envelope contains one JSON value and nothing else."""
    return f"coalesce(try_variant_get({parsed}, '$[1]', 'string') = {_seal(text)}, false)"


def is_text_sql(text: str = TEXT) -> str:
    """Returns the condition that bytes are Unicode: valid UTF-8, and no escape is half of a surrogate pair."""
    rest = f"regexp_replace({text}, r'{_PAIRS}', '')"
    escaped = rf"contains({text}, r'\ud') OR contains({text}, r'\uD')"
    return f"is_valid_utf8({text}) AND NOT (({escaped}) AND regexp_like({rest}, r'{_HALF}'))"


def scalar_sql(variant: str, path: str, of: FieldType) -> tuple[str, str]:
    """Returns expressions for (why a variant is not of a scalar type, null if it is; its value)."""
    leaf = _checked(variant, f"schema_of_variant({variant})", path, of)
    return leaf.reason, leaf.value


def matches_sql(text: str, pattern: str) -> str:
    """Returns the condition that a regular expression matches the whole text."""
    # Not `$`, which also matches before a final line break.
    return rf"regexp_like({text}, r'^({pattern})\z')"


def _seal(text: str) -> str:
    return f"sha2({text}, 256)"


@dataclass(frozen=True, slots=True)
class _Leaf:
    """The SQL of one declared field: its path, its JSON type, why it is bad (null = it is good), and its value."""

    variant: str
    json_type: str
    reason: str
    value: str


@dataclass(frozen=True, slots=True)
class _Scalar:
    """The SQL of a scalar: its variant, its JSON type, its text (for kinds that JSON writes as text), and its value."""

    variant: str
    json_type: str
    text: str
    value: str


@dataclass(slots=True)
class Decoder:
    """The columns that decode one record type, in stages; each is computed once per record.

    Attributes:
        variants: columns with the variant of each field that is reached through structs only.
        json_types: columns with its JSON type, and with its text if the value is read from text.
        values: columns with the value of each scalar among them, null if it does not fit.
        reason: expression of the first reason; null if the record is good.
        record: expression of the record struct, meaningful only if the reason is null.
        fields_reason: the first reason of a field, for a value that is an object.
        root: the column with the variant, and in it the path of the object.
    """

    record_type: FieldType
    root: tuple[str, str] = ("_parsed", "$[0]")
    variants: list[str] = field(default_factory=list)
    json_types: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    reason: str = ""
    record: str = ""
    fields_reason: str = ""
    _given: list[str] = field(default_factory=list)
    """The variants that are null where the field is missing: it has no default."""

    def __post_init__(self) -> None:
        reasons, values = [], []
        for name, of in self.record_type.fields:
            leaf = self._at(f"{self.root[1]}.{name}", name, of)
            reasons.append(leaf.reason)
            values.append(f"'{name}', {leaf.value}")
        self.record = f"named_struct({', '.join(values)})"
        self.fields_reason = f"coalesce({', '.join([*reasons, 'NULL'])})"
        self.reason = f"coalesce({self._envelope()}, {', '.join(reasons)})"

    def _at(self, json_path: str, path: str, of: FieldType) -> _Leaf:
        number = len(self.variants)
        variant, json_type = f"_v{number}", f"_t{number}"
        self.variants.append(f"{_found(self.root[0], json_path, of)} AS {variant}")
        self.json_types.append(f"schema_of_variant({variant}) AS {json_type}")
        if of.default is None:
            self._given.append(variant)
        if of.kind in ("list", "map") or (of.kind == "struct" and of.default is not None):
            return _checked(variant, json_type, path, of)
        if of.kind != "struct":
            return _scalar(self._in_columns(_Scalar(variant, json_type, _text(variant), ""), number, of), path, of)
        inner = [(name, self._at(f"{json_path}.{name}", f"{path}.{name}", t)) for name, t in of.fields]
        return _struct(variant, json_type, path, of, inner)

    def _in_columns(self, found: _Scalar, number: int, of: FieldType) -> _Scalar:
        """Returns the same scalar with its text and its value in columns."""
        text, value = f"_x{number}", f"_c{number}"
        if _form(of) in _FORMATS:
            self.json_types.append(f"{found.text} AS {text}")
        self.values.append(f"{_value(found.variant, text, of)} AS {value}")
        return _Scalar(found.variant, found.json_type, text, value)

    def _envelope(self) -> str:
        # A value with a field is an object. Its type, a long text, is only computed if no field is found.
        bare = " AND ".join(f"{variant} IS NULL" for variant in self._given) or "true"
        is_object = "startswith(schema_of_variant(try_variant_get(_parsed, '$[0]', 'variant')), 'OBJECT<')"
        broken = (
            ("value IS NULL", Reason.NULL_VALUE),
            (f"NOT ({is_text_sql()})", Reason.INVALID_UTF8),
            (f"_parsed IS NULL OR NOT {is_sealed_sql('_parsed')}", Reason.MALFORMED_JSON),
            (f"{bare} AND NOT {is_object}", Reason.NOT_AN_OBJECT),
        )
        return "CASE " + " ".join(f"WHEN {test} THEN '{reason.value}'" for test, reason in broken) + " END"


def _struct(variant: str, json_type: str, path: str, of: FieldType, inner: list[tuple[str, _Leaf]]) -> _Leaf:
    present = f"coalesce(startswith({json_type}, 'OBJECT<'), false)"
    reasons = ", ".join(leaf.reason for _, leaf in inner)
    values = ", ".join(f"'{name}', {leaf.value}" for name, leaf in inner)
    mismatch = f"WHEN NOT {present} THEN '{Reason.WRONG_TYPE.at(path)}'"
    reason = f"CASE {_absent(variant, json_type, path, of)} {mismatch} ELSE coalesce({reasons}, NULL) END"
    value = f"CASE WHEN {present} THEN named_struct({values}) END"
    return _Leaf(variant, json_type, reason, value)


def _checked(variant: str, json_type: str, path: str, of: FieldType, depth: int = 0) -> _Leaf:
    """Returns a field that is not a struct reached through structs: a scalar, a list, or anything inside a list."""
    if of.kind == "list" and of.element is not None:
        return _list(variant, json_type, path, of, depth)
    if of.key is not None and of.element is not None:
        return _map(variant, json_type, path, of, depth)
    if of.kind == "struct":
        inner = []
        for name, t in of.fields:
            at = _found(variant, f"$.{name}", t)
            inner.append((name, _checked(at, f"schema_of_variant({at})", f"{path}.{name}", t, depth)))
        return _struct(variant, json_type, path, of, inner)
    text = _text(variant)
    return _scalar(_Scalar(variant, json_type, text, _value(variant, text, of)), path, of)


def _scalar(found: _Scalar, path: str, of: FieldType) -> _Leaf:
    tests = " ".join(f"WHEN {test} THEN '{reason.at(path)}'" for test, reason in _misfits(found, of))
    reason = f"CASE {_absent(found.variant, found.json_type, path, of)} {tests} END"
    return _Leaf(found.variant, found.json_type, reason, found.value)


def _list(variant: str, json_type: str, path: str, of: FieldType, depth: int) -> _Leaf:
    element = f"_e{depth}"
    elements = f"try_variant_get({variant}, '$', 'array<variant>')"
    assert of.element is not None  # noqa: S101  (for the type checker)
    # The cast turns a JSON null element into SQL null, and missing elements do not exist.
    item_type = f"coalesce(schema_of_variant({element}), 'VOID')"
    item = _checked(f"coalesce({element}, parse_json('null'))", item_type, f"{path}[]", of.element, depth + 1)
    found = f"filter(transform({elements}, {element} -> {item.reason}), _r -> _r IS NOT NULL)"
    mismatch = f"WHEN NOT startswith({json_type}, 'ARRAY<') THEN '{Reason.WRONG_TYPE.at(path)}'"
    reason = f"CASE {_absent(variant, json_type, path, of)} {mismatch} ELSE try_element_at({found}, 1) END"
    value = f"CASE WHEN startswith({json_type}, 'ARRAY<') THEN transform({elements}, {element} -> {item.value}) END"
    return _Leaf(variant, json_type, reason, value)


def _map(variant: str, json_type: str, path: str, of: FieldType, depth: int) -> _Leaf:
    """Returns a map in the order of its keys. Of several reasons the least counts, because members have no order."""
    assert of.key is not None and of.element is not None  # noqa: S101, PT018  (for the type checker)
    entries, name = f"try_variant_get({variant}, '$', 'map<string, variant>')", f"_e{depth}"
    names = f"array_sort(map_keys({entries}))"
    held = f"try_element_at({entries}, {name})"
    item_type = f"coalesce(schema_of_variant({held}), 'VOID')"
    item = _checked(f"coalesce({held}, parse_json('null'))", item_type, f"{path}{{}}", of.element, depth + 1)
    tests = " ".join(f"WHEN {test} THEN '{reason.at(f'{path}{{}}')}'" for test, reason in _member_misfits(name, of.key))
    reason_of = f"CASE {tests} ELSE {item.reason} END" if tests else item.reason
    found = f"filter(transform({names}, {name} -> {reason_of}), _r -> _r IS NOT NULL)"
    mismatch = f"WHEN NOT startswith({json_type}, 'OBJECT<') THEN '{Reason.WRONG_TYPE.at(path)}'"
    reason = f"CASE {_absent(variant, json_type, path, of)} {mismatch} ELSE array_min({found}) END"
    made = f"map_from_arrays({names}, transform({names}, {name} -> {item.value}))"
    return _Leaf(variant, json_type, reason, f"CASE WHEN startswith({json_type}, 'OBJECT<') THEN {made} END")


def _found(variant: str, json_path: str, of: FieldType) -> str:
    """Returns the variant at a path, or the default of a missing field; a JSON null is not missing."""
    found = f"try_variant_get({variant}, '{json_path}', 'variant')"
    return found if of.default is None else f"coalesce({found}, parse_json({_literal(of.default)}))"


def _literal(text: str) -> str:
    """Returns a string literal of Spark."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _form(of: FieldType) -> str:
    return of.form or of.kind


def _absent(variant: str, json_type: str, path: str, of: FieldType) -> str:
    if of.nullable:
        return f"WHEN {variant} IS NULL OR {json_type} = 'VOID' THEN NULL"
    missing, null = Reason.MISSING_FIELD.at(path), Reason.NULL_FIELD.at(path)
    return f"WHEN {variant} IS NULL THEN '{missing}' WHEN {json_type} = 'VOID' THEN '{null}'"


def _misfits(found: _Scalar, of: FieldType) -> list[tuple[str, Reason]]:
    """Returns conditions in order; the first that holds is the reason. A condition may rely on the previous ones."""
    return [*_type_misfits(found, of), *_member_misfits(found.value, of)]


def _member_misfits(value: str, of: FieldType) -> list[tuple[str, Reason]]:
    members = ", ".join(_literal(m) if isinstance(m, str) else str(m) for m in of.members)
    return [(f"{value} NOT IN ({members})", Reason.UNKNOWN_MEMBER)] if members else []


def _type_misfits(found: _Scalar, of: FieldType) -> list[tuple[str, Reason]]:
    json_type, text, value = found.json_type, found.text, found.value
    is_decimal = f"startswith({json_type}, 'DECIMAL(')"
    if _form(of) in ("bool", "str"):
        wanted = "BOOLEAN" if of.kind == "bool" else "STRING"
        return [(f"{json_type} != '{wanted}'", Reason.WRONG_TYPE)]
    if of.kind == "int":
        # The parser keeps integers beyond 64 bits as decimals, but also 1.5 and 1.0, which are not integers.
        return [
            (f"{is_decimal} AND {value} IS NULL", Reason.OUT_OF_RANGE),
            (f"{json_type} != 'BIGINT'", Reason.WRONG_TYPE),
        ]
    if of.kind == "float":
        return [
            (f"NOT ({json_type} IN ('BIGINT', 'DOUBLE') OR {is_decimal})", Reason.WRONG_TYPE),
            (f"{value} IS NULL OR abs({value}) = DOUBLE('Infinity')", Reason.OUT_OF_RANGE),
        ]
    numbers = f"{json_type} IN ('BIGINT', 'STRING') OR {is_decimal}" if of.kind == "decimal" else "false"
    misfits = [
        (f"{json_type} != 'STRING' AND NOT ({numbers})", Reason.WRONG_TYPE),
        (f"NOT {matches_sql(text, _FORMATS[_form(of)])}", Reason.BAD_FORMAT),
        (f"NOT ({_fits(text, value, of)})", Reason.OUT_OF_RANGE),
    ]
    # The parser makes a number with an exponent or more than 38 digits a double, which is not exactly the number.
    inexact = (f"{json_type} = 'DOUBLE'", Reason.OUT_OF_RANGE)
    return [inexact, *misfits] if of.kind == "decimal" else misfits


def _fits(text: str, value: str, of: FieldType) -> str:
    if of.kind == "decimal":
        return f"{value} IS NOT NULL AND {matches_sql(text, f'-?[0-9]+([.][0-9]{{0,{of.scale}}}0*)?')}"
    if of.form:
        return matches_sql(text, _DAY) if of.form == "time" else "true"
    if of.kind == "bytes":
        return f"{value} IS NOT NULL"
    least, most = ("0001-01-01", "9999-12-31") if of.kind == "date" else (
        "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z",
    )  # fmt: skip
    return f"coalesce({value} BETWEEN {of.sql} '{least}' AND {of.sql} '{most}', false)"


def _text(variant: str) -> str:
    return f"try_variant_get({variant}, '$', 'string')"


def _value(variant: str, text: str, of: FieldType) -> str:
    if _form(of) not in _FORMATS:
        found = f"try_variant_get({variant}, '$', '{of.sql}')"
        # No -0: a decimal and a whole number, as which the parser keeps most numbers, have none either.
        return f"({found} + DOUBLE('0'))" if of.kind == "float" else found
    if of.form:
        return f"lower({text})" if of.form == "uuid" else _time(text)
    if of.kind == "bytes":
        return f"try_to_binary({text}, 'base64')"
    if of.kind == "timestamp":
        # Spark's cast requires seconds before an offset.
        whole = f"substr({text}, 1, 16) || ':00' || substr({text}, 17)"
        text = f"CASE WHEN substr({text}, 17, 1) IN ('Z', '+', '-') THEN {whole} ELSE {text} END"
    return f"try_cast({text} AS {of.sql})"


def _time(text: str) -> str:
    """Returns the text of a time as Python writes it: seconds always, microseconds unless they are 0."""
    micros = f"rpad(substr({text}, 10), 6, '0')"
    whole = f"CASE WHEN length({text}) = 5 THEN {text} || ':00' ELSE substr({text}, 1, 8) END"
    return f"{whole} || CASE WHEN {micros} = '000000' THEN '' ELSE '.' || {micros} END"
