"""`tidemark checkpoint replay`: compute a checkpoint again and compare the states."""

from typing import Annotated

import typer

from tidemark.cli.checkpoint_id import CheckpointId, parse_id
from tidemark.cli.option_groups import PipelineName
from tidemark.cli.output import JsonFlag, cell, print_json, show_rows
from tidemark.cli.plain import plain
from tidemark.cli.progress import ProgressListener
from tidemark.context import open_context
from tidemark.errors import ReplayDiffersError
from tidemark.operations import replay as replay_operations
from tidemark.operations.replay import ReplayedState

_DIGITS = 16


def replay(
    pipeline: PipelineName,
    checkpoint: CheckpointId,
    force: Annotated[bool, typer.Option("--force", help="Replay even if other code made the checkpoint.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Compute a checkpoint again from its parent and its recorded plan, and compare the hashes of the states.

    Exits 1 if they differ, and 6 if Kafka no longer has all of its records. The computed states are not kept.

    Examples:
      tidemark checkpoint replay flights chk-3
      tidemark checkpoint replay flights 3 --json
    """
    with ProgressListener() as progress:
        states = replay_operations.replay(
            open_context(), pipeline, parse_id(checkpoint), force=force, listener=progress
        )
    if as_json:
        print_json([_facts(state) for state in states])
    else:
        show_rows([_line(state) for state in states], as_json=False)
    differing = [state for state in states if not state.is_equal]
    if differing:
        raise _differs(pipeline, f"chk-{parse_id(checkpoint)}", differing)


def _facts(state: ReplayedState) -> dict[str, object]:
    return {
        "uid": state.uid,
        "equal": state.is_equal,
        "rows": state.recorded.rows,
        "rows_replayed": state.replayed.rows,
        "sha256": state.recorded.sha256,
        "sha256_replayed": state.replayed.sha256,
        "left_out": list(state.recorded.left_out),
        "differing": plain(list(state.differing)),
    }


def _line(state: ReplayedState) -> dict[str, object]:
    return {
        "uid": state.uid,
        "rows": state.recorded.rows,
        "recorded": state.recorded.sha256[:_DIGITS],
        "replayed": state.replayed.sha256[:_DIGITS],
        "equal": "yes" if state.is_equal else "no",
        "left out": list(state.recorded.left_out),
    }


def _differs(pipeline: str, name: str, states: list[ReplayedState]) -> ReplayDiffersError:
    differing = [f"{s.uid} at {'; '.join('/'.join(map(cell, key.values())) for key in s.differing)}" for s in states]
    return ReplayDiffersError(
        f"the replay of {name} computed a different state: {', '.join(differing)}",
        safe=f"{name} and all other checkpoints are unchanged; nothing was written.",
        next=f"tidemark state show {pipeline} {states[0].uid} --checkpoint {name} --key KEY    (one of these keys).",
    )
