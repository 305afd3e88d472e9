"""The files of the bundle, a version that changes with them, and each entry of the bundle as one module.

The pages are some forty small files. A browser gets each entry of Airflow's as one module that holds all it imports:
forty requests, each with a login to check, delayed the first page (adr/0081). Below a path with the version browsers
keep it without asking again.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
ENTRIES = ("page.js", "tab.js", "home.js")
"""The modules that Airflow loads. They export nothing: they leave a component in the page's global object."""
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";$', re.MULTILINE)
_PASSED_ON = re.compile(r'^export \{([^}]*)\}(?: from "\./(\w+)\.js")?;$', re.MULTILINE)
_DECLARED = re.compile(r"^export (?=(?:async function|function|const) (?:(\w+)|\{([^}]*)\}))", re.MULTILINE)
_MODULE = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)


def version_of(folder: Path) -> str:
    """Returns a hash of names, sizes and times of files; it reads none: all of Airflow imports this."""
    found = [(path.name, path.stat()) for path in folder.iterdir()]
    told = sorted(f"{name} {of.st_size} {of.st_mtime_ns}" for name, of in found)
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:12]


VERSION = version_of(STATIC)


@cache
def join_modules(entry: Path) -> str:
    """Returns a module with all that it imports, directly or not, as one; each file runs once, in the order of imports.

    A file becomes a function that returns the names that the file exports. It must use the forms that the bundle uses:
    imports and exports of names in braces, which are not renamed, and `export` before `const` and `function`.

    Raises:
        ValueError: another form, files that import each other, or a name that its file does not export.
    """
    joined = dict[str, _Joined]()
    _join(entry, joined, ())
    return "\n".join(["const $ = {};", *(file.text for file in joined.values())])


@dataclass(frozen=True)
class _Joined:
    text: str
    exported: dict[str, str]


def _join(file: Path, joined: dict[str, _Joined], above: tuple[str, ...]) -> None:
    if file.stem in joined:
        return
    if file.stem in above:
        raise ValueError(f"{' → '.join([*above, file.stem])}: these files import each other")
    text = file.read_text()
    for match in (*_IMPORT.finditer(text), *_PASSED_ON.finditer(text)):
        if match[2]:
            _join(file.with_name(f"{match[2]}.js"), joined, (*above, file.stem))
            if missing := set(_names(match[1])) - set(joined[match[2]].exported):
                raise ValueError(f"{file.name} imports {sorted(missing)}, which {match[2]}.js does not export")
    exported = {name: name for match in _DECLARED.finditer(text) for name in _names(match[1] or match[2])}
    for match in _PASSED_ON.finditer(text):
        exported |= {name: f"$.{match[2]}.{name}" if match[2] else name for name in _names(match[1])}
    text = _IMPORT.sub(lambda match: f"const {{ {', '.join(_names(match[1]))} }} = $.{match[2]};", text)
    text = _DECLARED.sub("", _PASSED_ON.sub("", text))
    if other := _MODULE.search(text):
        raise ValueError(f"{file.name}: {other[0]}: not a form of import or export that the bundle uses")
    returned = ", ".join(f"{name}: {value}" for name, value in exported.items())
    joined[file.stem] = _Joined(f"$.{file.stem} = (() => {{\n{text}\nreturn {{ {returned} }};\n}})();\n", exported)


def _names(listed: str) -> list[str]:
    if " as " in listed:
        raise ValueError(f"{{{listed}}}: the bundle renames no imports and no exports")
    return [name.strip() for name in listed.split(",") if name.strip()]
