"""Foreign errors become ours at one seam, by what their message says."""

import pytest
from pyspark.errors import PySparkException

from tidemark.engine.session.spark_errors import NumericOverflow, translate_spark_errors
from tidemark.errors import BrokerError, DataLostError, EngineError, StateOverflowError, StoreError, TidemarkError

CASES: list[tuple[str, type[TidemarkError]]] = [
    (
        "java.lang.IllegalStateException: Some data may have been lost because they are gone",
        DataLostError,
    ),
    ("org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host", DataLostError),
    ("org.apache.kafka.common.KafkaException: Failed to construct kafka consumer", BrokerError),
    ("org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired", BrokerError),
    ("java.io.IOException: No space left on device", StoreError),
    ("[ARITHMETIC_OVERFLOW] long overflow", NumericOverflow),
    ("[USER_RAISED_EXCEPTION] tidemark_state_overflow total of key (a, 3) does not fit its type", StateOverflowError),
    ("something nobody has seen", EngineError),
]


@pytest.mark.parametrize(("message", "expected"), CASES)
def test_a_foreign_error_becomes_ours(message: str, expected: type[TidemarkError]) -> None:
    with pytest.raises(expected) as caught, translate_spark_errors():
        raise PySparkException(message)
    assert type(caught.value) is expected
    assert caught.value.next and caught.value.safe


def test_the_key_of_an_overflow_is_in_the_message() -> None:
    with pytest.raises(StateOverflowError, match=r"total of key \(a, 3\) does not fit"), translate_spark_errors():
        raise PySparkException(
            "[USER_RAISED_EXCEPTION] tidemark_state_overflow total of key (a, 3) does not fit its type"
        )


def test_our_own_errors_and_defects_pass_through() -> None:
    with pytest.raises(KeyError), translate_spark_errors():
        raise KeyError("a defect")
    with pytest.raises(BrokerError), translate_spark_errors():
        raise BrokerError("x", next="y")


def test_the_stack_trace_stays_out_of_the_message() -> None:
    with pytest.raises(EngineError) as caught, translate_spark_errors():
        raise PySparkException("first line\n\tat org.apache.spark.Foo(Foo.scala:1)\n" * 50)
    assert "Foo.scala" not in caught.value.what
