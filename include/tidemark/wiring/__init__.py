"""The one composition root: it joins settings, coordinator, engine and adapters, and decides nothing."""

from tidemark.settings import Settings, load_settings
from tidemark.wiring.backfills import Backfills
from tidemark.wiring.bootstraps import Bootstraps
from tidemark.wiring.compactions import Compactions
from tidemark.wiring.erasing import Erasing
from tidemark.wiring.exports import Exports
from tidemark.wiring.measuring import Measuring
from tidemark.wiring.outputs import Outputs
from tidemark.wiring.patches import Patches
from tidemark.wiring.replays import Replays
from tidemark.wiring.steps import Folded, Made, Planned
from tidemark.wiring.stoppages import Stoppages

__all__ = ["Folded", "Made", "Planned", "Runtime", "open_runtime"]


class Runtime(Stoppages, Backfills, Replays, Compactions, Outputs, Exports, Bootstraps, Patches, Erasing, Measuring):
    """Everything a process needs to make and read checkpoints of the pipelines that the settings name."""


def open_runtime(settings: Settings | None = None) -> Runtime:
    """The runtime of this process; cheap, because parts are made when they are asked for.

    Raises:
        UsageError: a setting is unknown or does not fit.
    """
    return Runtime(settings or load_settings())
