"""The quality gate without an engine: which expectations apply to which frame, and the verdict on their results.

The Spark engine and its in-memory twin give the frames and run Great Expectations on them. If Great Expectations or the
gate's own function raises, the data has neither passed nor failed: the verdict says that the gate could not judge.
"""

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from tidemark.declare.pipeline import Gate
from tidemark.errors import TidemarkError
from tidemark.model.checkpoint.manifest import Expectation, Verdict

_FRAMES = ("records", "changes", "state")
_LONGEST_DETAIL = 500
_TALKATIVE = ("great_expectations", "great_expectations.data_context.types.base")
"""Loggers of Great Expectations; the second has its own level and logs every temporary folder."""

Validate = Callable[[Any, Sequence[Any]], Sequence[Any]]
"""Runs expectations on a frame with Great Expectations; returns its results."""


class GatedFrames(Protocol):
    """The frames of a candidate that a gate judges."""

    @property
    def sources(self) -> Sequence[str]:
        """Names of the pipeline's sources."""

    @property
    def uids(self) -> Sequence[str]:
        """Uids of the operators and broadcast states."""

    def frame(self, kind: str, uid: str) -> Any:
        """Returns a frame by name; None if the source has no records or the run of the operator has no rows.

        Args:
            kind: `records`, `changes` or `state`.
            uid: the operator, or the source of `records`; empty = the only source.
        """


def judge(gate: Gate, frames: GatedFrames, validate: Validate) -> Verdict:
    """Runs a gate on a candidate; it passes if all critical expectations hold and all could be judged.

    Raises:
        TidemarkError: a frame could not be read.
    """
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    outcomes: list[Expectation] = []
    errors: list[str] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, frame, expectations in _expectations_of(gate, frames):
                for result in validate(frame, expectations):
                    outcomes.append(_outcome(name, result))
                    errors += [f"{name}: {_type(result)}: {why}" for why in _exceptions(result.exception_info)]
    except TidemarkError:
        raise
    except Exception as error:  # noqa: BLE001  (whatever breaks a gate, the verdict carries it)
        errors.append(f"{type(error).__name__}: {error}")
    failed = any(not e.success and e.severity == "critical" for e in outcomes)
    why = "; ".join(errors)[:1000] or None
    return Verdict(passed=not failed and why is None, error=why, expectations=tuple(outcomes))


def quiet_context(gx: Any) -> Any:
    """Returns a context of Great Expectations that writes nothing.

    Args:
        gx: the module `great_expectations`, which the caller imports when a gate runs: that takes seconds.
    """
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.ERROR)
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = gx.data_context.types.base.ProgressBarsConfig(globally=False)
    return context


def run_suite(gx: Any, asset: Any, frame: Any, expectations: Sequence[Any]) -> Sequence[Any]:
    """Runs expectations on a frame, as a batch of an asset; returns the results of Great Expectations."""
    batch = asset.add_batch_definition_whole_dataframe("whole").get_batch(batch_parameters={"dataframe": frame})
    suite = gx.ExpectationSuite(name="gate", expectations=list(expectations))
    results: Sequence[Any] = batch.validate(suite, result_format="SUMMARY").results
    return results


def _expectations_of(gate: Gate, frames: GatedFrames) -> Iterator[tuple[str, Any, Sequence[Any]]]:
    """Yields (name, frame, expectations) from the result of the gate's function.

    Raises:
        ValueError: it names a frame, a source or a uid that does not exist.
    """
    one = len(frames.sources) == 1
    for kind, wanted in gate().items():
        if kind not in _FRAMES:
            raise ValueError(f"unknown frame {kind!r}; there are {', '.join(_FRAMES)}")
        by_uid = wanted if isinstance(wanted, Mapping) else {"": wanted}
        known = frames.sources if kind == "records" else frames.uids
        if (kind == "records" and one) != (list(by_uid) == [""]) or set(by_uid) - {"", *known}:
            by = "a list" if one else f"a mapping by source ({', '.join(frames.sources)})"
            raise ValueError(f"{kind}: give {by} for records, and a mapping by uid for changes and state")
        for uid, expectations in by_uid.items():
            frame = frames.frame(kind, uid) if expectations else None
            if frame is not None:
                yield (f"{kind}.{uid}" if uid else kind), frame, list(expectations)


def _outcome(frame: str, result: Any) -> Expectation:
    severity = getattr(result.expectation_config, "severity", None) or "critical"
    return Expectation(
        frame=frame,
        type=_type(result),
        success=bool(result.success),
        severity=str(getattr(severity, "value", severity)),
        detail=_detail(result),
    )


def _type(result: Any) -> str:
    return str(result.expectation_config.type)


def _detail(result: Any) -> str:
    """Returns counts and the expectation, never the values themselves, which may be personal data."""
    asked = result.expectation_config.kwargs
    about = ", ".join(f"{name}={value}" for name, value in asked.items() if name != "batch_id" and value is not None)
    found = result.result or {}
    if "unexpected_count" in found:
        seen = f"{found['unexpected_count']} of {found.get('element_count', '?')} unexpected"
    else:
        seen = f"observed {found['observed_value']}" if "observed_value" in found else "no counts"
    return f"{seen} ({about})"[:_LONGEST_DETAIL] if about else seen


def _exceptions(info: Any) -> list[str]:
    """Returns the messages in Great Expectations' exception_info, which is one record, or one per metric."""
    if not isinstance(info, Mapping):
        return []
    if "raised_exception" in info:
        return [str(info.get("exception_message"))[:300]] if info["raised_exception"] else []
    return [message for inner in info.values() for message in _exceptions(inner)][:1]
