"""Options that several commands share, alone or grouped in a dataclass, each of whose fields is an option."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, get_type_hints

import typer

from tidemark.errors import UsageError

PipelineName = Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline's name.")]
AcceptLoss = Annotated[
    bool, typer.Option("--accept-loss", help="Record lost offsets and continue, instead of failing.")
]
AllowNonRestoredState = Annotated[
    bool, typer.Option("--allow-non-restored-state", help="Drop the state of operators that are no longer declared.")
]
Execute = Annotated[bool, typer.Option("--execute", help="Make the changes (default: only show them, a dry run).")]
Note = Annotated[str | None, typer.Option("--note", help="Add a note for people.")]
Expires = Annotated[
    str | None,
    typer.Option(
        "--expires",
        metavar="WHEN",
        help="Set the expiry: 30d, 12h, an ISO 8601 time (UTC if it has no zone), or never.",
    ),
]


def parse_time(text: str) -> datetime:
    """Parses an ISO 8601 time, as UTC if it names no zone.

    Raises:
        UsageError: the text is not an ISO 8601 time.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"not a time: {text!r}", next="write for example 2013-02-01T05:00:00Z.") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Returns a command for Typer in which every field of its dataclass parameters is an option.

    Annotate the fields like Typer's parameters, and give each a default.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)}

    @functools.wraps(command)
    def expanded(**given: Any) -> None:  # noqa: ANN401
        joined = {n: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for n, kind in groups.items()}
        command(**given, **joined)

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            kind = groups[parameter.name]
            own = get_type_hints(kind, include_extras=True)
            parameters += [_parameter(f, own[f.name]) for f in fields(kind)]
        else:
            parameters.append(parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY))
    setattr(expanded, "__signature__", inspect.Signature(parameters))  # noqa: B010  (functions declare no such attribute)
    expanded.__annotations__ = {p.name: p.annotation for p in parameters}
    return expanded


def _parameter(f: "Field[Any]", annotation: object) -> inspect.Parameter:
    default = f.default_factory() if f.default_factory is not MISSING else f.default
    return inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
