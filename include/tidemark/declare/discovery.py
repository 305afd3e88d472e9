"""Finds pipelines by name: the `Pipeline` values in the files of the `TIDEMARK_PIPELINES` folders."""

import hashlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from tidemark.declare.fingerprint import BESIDE
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import DeclarationError, NotFoundError, TidemarkError
from tidemark.model.core.names import checked_name


def find_pipeline(name: str, folders: Sequence[Path]) -> Pipeline:
    """Returns the pipeline called `name`.

    Raises:
        NotFoundError: no file declares it; the message lists the declared ones.
        DeclarationError: two files declare it, or a file cannot be imported and no other file declares it.
    """
    checked_name("pipeline", name)
    found: dict[str, tuple[Pipeline, Path]] = {}
    broken: list[TidemarkError] = []
    for path in _files(folders):
        try:
            declared = declared_in(path)
        except TidemarkError as error:
            broken.append(error)
            continue
        for pipeline in declared:
            if pipeline.name in found and found[pipeline.name][1] != path:
                raise DeclarationError(
                    f"two files declare the pipeline {pipeline.name}: {found[pipeline.name][1]} and {path}",
                    next="rename one of them.",
                )
            found[pipeline.name] = (pipeline, path)
    if name in found:
        return found[name][0]
    if broken:
        raise broken[0]
    known = ", ".join(sorted(found)) or "none"
    raise NotFoundError(f"no pipeline {name!r}", next=f"name one of: {known}; or set TIDEMARK_PIPELINES.")


def declared_in(path: Path) -> list[Pipeline]:
    """Returns the pipelines that one file declares at module level.

    Raises:
        DeclarationError: the file cannot be imported; the message says where and why.
    """
    module = _imported(path)
    seen: dict[int, Pipeline] = {id(v): v for v in vars(module).values() if isinstance(v, Pipeline)}
    return list(seen.values())


def _files(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        if not folder.is_dir():
            raise NotFoundError(f"no such folder of pipelines: {folder}", next="correct TIDEMARK_PIPELINES.")
        yield from sorted(p for p in folder.glob("*.py") if not p.name.startswith("_"))


def _imported(path: Path) -> ModuleType:
    # Resolve links: a link that now points to other code must not show the old file.
    real = path.resolve()
    name = f"{path.parent.name}.{path.stem}"
    # One module per file, under the name that `from pipelines.x import y` gives it if that is the same file, so that
    # classes declared in it have one identity in a process. The name from a second such folder gets a suffix.
    for known_as in (name, name + BESIDE + hashlib.sha256(str(real).encode()).hexdigest()[:12]):
        known = sys.modules.get(known_as)
        if known is None:
            return _loaded(known_as, real)
        if Path(known.__file__ or "").resolve() == real:
            return known
    raise DeclarationError(f"cannot import {path}: the module name {known_as} is taken", next="rename the file.")


def _loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DeclarationError(f"cannot import {path}", next="give it a .py name.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except TidemarkError:
        del sys.modules[name]
        raise
    except Exception as error:
        del sys.modules[name]
        raise _unimportable(path, error) from error
    return module


def _unimportable(path: Path, error: Exception) -> DeclarationError:
    line = error.lineno if isinstance(error, SyntaxError) else _line_in(path, error)
    where = f"{path}:{line}" if line else str(path)
    return DeclarationError(
        f"cannot import the pipeline file {where}: {type(error).__name__}: {error}",
        next="fix the file; `python " + str(path) + "` shows the whole traceback.",
    )


def _line_in(path: Path, error: Exception) -> int | None:
    found, step = None, error.__traceback__
    while step is not None:
        if Path(step.tb_frame.f_code.co_filename) == path:
            found = step.tb_lineno
        step = step.tb_next
    return found
