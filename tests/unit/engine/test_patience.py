"""One patience for all calls of a session, on a clock of the test's own."""

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql.connect.client.retries import Retrying, RetryPolicy

from tidemark.engine.session import session
from tidemark.engine.session.session import PATIENCE, policies
from tidemark.engine.session.spark_errors import translate_spark_errors
from tidemark.errors import EngineError


class Refused(grpc.RpcError):  # type: ignore[misc]  # gRPC comes without types
    """What gRPC raises where nobody answers; with details, where a server has said something."""

    def __init__(self, details: status_pb2.Status | None = None) -> None:
        super().__init__("StatusCode.UNAVAILABLE: failed to connect to all addresses")
        self._details = details

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "" if self._details is None else self._details.message

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:
        said = self._details
        return () if said is None else (("grpc-status-details-bin", said.SerializeToString()),)


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(session, "time", made)
    return made


def called(of: list[RetryPolicy], clock: Clock, away_until: float, error: Refused | None = None) -> int:
    """A call to a server that answers from some moment on; how often it was tried."""
    tries = 0
    for attempt in Retrying(of, sleep=clock.sleep):
        with attempt:
            tries += 1
            if clock.now < away_until:
                raise error or Refused()
    return tries


def test_a_server_that_is_gone_is_noticed_in_time_and_waited_for_once(clock: Clock) -> None:
    session, began = policies(), clock.now
    with pytest.warns(UserWarning, match="RETRIES_EXCEEDED"), pytest.raises(Refused):
        called(session, clock, away_until=float("inf"))
    assert PATIENCE - 1 <= clock.now - began <= PATIENCE < 10
    gave_up = clock.now
    with pytest.warns(UserWarning, match="RETRIES_EXCEEDED"), pytest.raises(Refused):
        called(session, clock, away_until=float("inf"))
    assert clock.now == gave_up, "what cleans up does not wait again"
    assert called(session, clock, away_until=gave_up) == 1, "it may answer all the same"


@pytest.mark.parametrize("seconds", [0.05, 1, 4, 7.5])
def test_a_blip_is_survived_and_leaves_the_next_one_as_much(clock: Clock, seconds: float) -> None:
    session = policies()
    for _ in range(5):
        assert called(session, clock, away_until=clock.now + seconds) > 1


def test_another_session_has_a_patience_of_its_own(clock: Clock) -> None:
    with pytest.warns(UserWarning, match="RETRIES_EXCEEDED"), pytest.raises(Refused):
        called(policies(), clock, away_until=float("inf"))
    assert called(policies(), clock, away_until=clock.now + 3) > 1


def test_a_server_that_says_when_to_come_back_is_alive(clock: Clock) -> None:
    info = error_details_pb2.RetryInfo()
    info.retry_delay.seconds = 20
    packed = any_pb2.Any()
    packed.Pack(info)
    busy = Refused(status_pb2.Status(code=14, message="busy", details=[packed]))
    assert called(policies(), clock, clock.now + 30, busy) == 3


def test_a_server_that_is_gone_is_an_error_of_three_lines() -> None:
    with pytest.raises(EngineError, match="Spark no longer answers") as gone, translate_spark_errors():
        raise SparkConnectGrpcException(str(Refused()), grpc_status_code=grpc.StatusCode.UNAVAILABLE)
    assert len(str(gone.value).splitlines()) == 3
