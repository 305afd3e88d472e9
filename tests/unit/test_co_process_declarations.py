"""Co-processes as declarations: what is refused, what they are stored as, and what they are called elsewhere."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pytest

from tests.support.co_process_cases import INPUTS, CoRules, co_pipeline
from tidemark import CoProcess, Fold, KafkaSource, Pipeline, formats, state
from tidemark.declare.arrival import refuse_late
from tidemark.errors import DeclarationError, UsageError
from tidemark.model.retention.erasure import ErasedKey, keyed_by
from tidemark.model.schema.operator_schema import OperatorSchema

PIPELINE = co_pipeline(CoRules())
STEPS = PIPELINE.operator("steps")
KEYS = {"orders": ("id", "customer.region"), "payments": ("order_id", "region")}


@dataclass(frozen=True)
class Changed:
    """A row with changes."""

    id: str
    at: datetime


class Kept(state.Keyed):
    """A state of folds."""

    n: int = state.count()


def changed(**given: Any) -> Pipeline:
    assert isinstance(STEPS, CoProcess)
    operators = [replace(STEPS, **given) if o is STEPS else o for o in PIPELINE.operators]
    return replace(PIPELINE, operators=operators)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"inputs": ("orders",)}, "name different ones"),
        ({"inputs": "orders"}, "name different ones"),
        ({"inputs": ("orders", "orders")}, "name different ones"),
        ({"inputs": ("orders", "payments")}, "give the key of each input"),
        ({"inputs": ("orders", "nowhere"), "key_by": {"orders": "id", "nowhere": "id"}}, "unknown input 'nowhere'"),
        ({"inputs": ("orders", "payments"), "key_by": {**KEYS, "orders": "id"}}, "as many fields of each input"),
        (
            {"inputs": ("orders", "payments"), "key_by": {"orders": "id", "payments": "region"}},
            "id of orders is STRING, region of payments BIGINT",
        ),
        ({"inputs": ("orders", "payments"), "key_by": {"orders": "no", "payments": "region"}}, "no such field"),
        ({"inputs": ("orders", "payments"), "key_by": {"orders": "customer", "payments": "region"}}, "cannot be a key"),
        ({"where": "cents > 3"}, "where= for a CoProcess"),
        ({"input": "orders"}, "input= for a CoProcess"),
        ({"order": "offset"}, "order= for a CoProcess"),
        ({"state": Kept}, "kinds of state for a Fold"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(DeclarationError) as error:
        changed(**given)
    assert why in str(error.value)


def test_changes_of_rows_are_refused() -> None:
    source = KafkaSource("orders", Changed, event_time="at", format=formats.Debezium())
    assert isinstance(STEPS, CoProcess)
    made = replace(STEPS, inputs=("orders", "payments"), key_by={"orders": "id", "payments": "region"})
    with pytest.raises(DeclarationError, match="orders has changes of rows"):
        Pipeline(name="shop", sources={**PIPELINE.sources, "orders": source}, operators=[made])


def test_a_co_process_is_stored_and_read_again() -> None:
    schema = PIPELINE.schemas()["steps"]
    again = OperatorSchema.from_json(schema.to_json())
    assert again == schema and again.co_inputs == again.several_inputs == INPUTS
    assert [(key.name, key.source) for key in schema.keys] == [("id", "key.id"), ("region", "key.region")]
    assert PIPELINE.recorded_inputs == {"split": "payments", "counts": "steps"}
    assert PIPELINE.readers("orders") == ("steps",) and PIPELINE.readers("payments") == ("split", "steps")
    assert PIPELINE.uids == ("split", "steps", "counts")


def test_other_inputs_share_the_state_and_change_the_code() -> None:
    assert isinstance(STEPS, CoProcess)
    fewer = changed(inputs=("orders", "payments"), key_by={name: STEPS.key_by[name] for name in ("orders", "payments")})
    assert fewer.schemas()["steps"].fingerprint == PIPELINE.schemas()["steps"].fingerprint
    assert fewer.fingerprint != PIPELINE.fingerprint
    assert changed(lateness="3m").fingerprint == PIPELINE.fingerprint, "clocks are in the plan"


def test_another_function_of_timers_is_other_code() -> None:
    assert isinstance(STEPS, CoProcess)
    assert changed(on_timer=lambda key, name, at, trail: None).fingerprint != PIPELINE.fingerprint


def test_letters_of_a_co_process_are_not_redriven() -> None:
    with pytest.raises(UsageError, match="steps has several inputs: a redrive of its dead letters is not supported"):
        refuse_late(PIPELINE, "steps", out_of_order=True)
    with pytest.raises(UsageError, match="counts gets rows of the timers of steps"):
        refuse_late(PIPELINE, "counts", out_of_order=True)


def test_an_operator_behind_is_fed_by_the_frontier() -> None:
    plain = co_pipeline(CoRules(has_timers=False))
    assert [o.uid for o in plain.clocked] == ["steps", "counts"]
    counts = plain.operator("counts")
    assert isinstance(counts, Fold) and plain.input_of(counts) == "steps"


def test_an_erased_key_is_looked_for_in_any_member_of_a_letter_because_inputs_name_it_differently() -> None:
    for schema, several in ((PIPELINE.schemas()["steps"], True), (PIPELINE.schemas()["counts"], False)):
        stored = OperatorSchema.from_json(schema.to_json())
        key = tuple("a" if k.type.kind == "str" else 1 for k in stored.own_keys)
        assert ErasedKey.of(keyed_by(stored, ()), key).has_several_names is several
