"""A warehouse, opened: where the Python API begins."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tidemark.api.history import PipelineHistory
from tidemark.api.lookups import add_advice
from tidemark.context import Context, open_context
from tidemark.errors import UsageError
from tidemark.extras import require
from tidemark.model.core.names import is_url
from tidemark.settings import Settings, load_settings


def open(  # the name that `tidemark.open` has  # noqa: A001
    warehouse: str | Path | None = None, *, settings: Settings | None = None
) -> "Warehouse":
    """Opens a warehouse. Nothing is read or connected to before you ask for something.

    Args:
        warehouse: a folder, relative to the working folder, or `s3://BUCKET/FOLDER`. Without it, the warehouse of the
            settings: `TIDEMARK_WAREHOUSE`, as on the command line.
        settings: all settings, instead of those in the environment and in `.env`.

    Returns:
        The warehouse; `w["flights"]` is a pipeline of it.

    Raises:
        UsageError: a setting is unknown or does not fit; or both arguments are given; or the packages that read tables
            are not installed.

    >>> import tidemark
    >>> w = tidemark.open("warehouse")
    >>> w.pipelines()
    ['flights']
    >>> w["flights"].state("aircraft", at="chk-2").get("N14228")
    {'tail_number': 'N14228', 'flights': 2, 'distance': 2119, 'last_airport': 'ORD', '_changed': 2}
    """
    require("deltalake", "duckdb", "pyarrow")
    if warehouse is None:
        return Warehouse(open_context(settings))
    if settings is not None:
        raise UsageError("both a warehouse and settings", next="give one of them.")
    place = str(warehouse) if is_url(str(warehouse)) else str(Path(warehouse).expanduser().absolute())
    return Warehouse(open_context(load_settings(warehouse=place)))


@dataclass(frozen=True, slots=True)
class Warehouse:
    """All pipelines of a warehouse, by name.

    Attributes:
        context: the parts of Tidemark that work on it; not part of the public interface.

    >>> "flights" in w, list(w)
    (True, ['flights'])
    >>> w["trains"]
    Traceback (most recent call last):
        ...
    tidemark.errors.NotFoundError: no pipeline 'trains'
    Safe: nothing was written.
    Next: .pipelines() lists the pipelines of the warehouse; TIDEMARK_PIPELINES names the folders of pipeline files.
    """

    context: Context

    def pipelines(self) -> list[str]:
        """Names of the pipelines that have planned a checkpoint, in order. One listing of the warehouse."""
        return self.context.warehouse.list_pipelines()

    def __getitem__(self, name: str) -> PipelineHistory:
        """A pipeline of the warehouse, or one that a file declares and that has no checkpoint yet.

        Raises:
            NotFoundError: neither the warehouse nor a file has it.
            NameRefusedError: no pipeline can have the name.
        """
        with add_advice(
            ".pipelines() lists the pipelines of the warehouse; TIDEMARK_PIPELINES names the folders of pipeline files."
        ):
            return PipelineHistory(self.context, self.context.require_pipeline(name))

    def __contains__(self, name: str) -> bool:
        return self.context.warehouse.has_planned(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.pipelines())

    def __repr__(self) -> str:
        return f"<warehouse {self.context.settings.warehouse}>"
