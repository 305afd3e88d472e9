"""The English of documents and sources: habits that make a sentence hard to read, and what to write in their place.

The measure is the documentation of Flink, httpx and DuckDB: active voice, the subject first, the reader as *you*.

    python -m tests.english README.md include/tidemark/coordinator

lists the findings of files and folders.
"""

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`|\]\([^)\s]*\)|^#+ .*$", re.MULTILINE)
"""Names of code, addresses of links, and headings, which links lead to."""
SENTENCE = re.compile(r"[.?!:;|]\s|\n\s*\n|\n\s*[-*\d]")


@dataclass(frozen=True)
class Habit:
    """A habit to drop.

    Attributes:
        words: what it looks like.
        instead: what to write.
    """

    words: re.Pattern[str]
    instead: str


def _habit(words: str, instead: str) -> Habit:
    return Habit(re.compile(words), instead)


HABITS = (
    _habit(r"\b[Ww]hoever\b|\b[Ss]omebody\b|\b[Nn]obody\b|\b[Aa]nybody\b", "name the person or the process, or *you*"),
    _habit(r"(?:^|[.:;|] |\*\*)Who\b(?![^.]*\?)", "if you …, a process that …"),
    _habit(r"\b[Tt](?:old|ells?|elling)\b", "show, report, list, say which"),
    _habit(
        r"\bof (?:now|then|ours)\b|\bof one's own\b|\boneself\b|\bone's own\b", "current, earlier, Tidemark's, your"
    ),
    _habit(r"\banew\b", "again, from the start"),
    _habit(r"\b[Bb]eside\b", "next to, in addition to, while"),
    _habit(r"\b(?:go|goes|going|went|gone) on\b", "continue"),
    _habit(r"\b(?:come|comes|came|coming) to\b", "is, becomes, results in"),
    _habit(r"\bstands?\b(?!-)|\bstood\b", "is, is written"),
    _habit(r"\b[Ww]hat (?:is|was|has|had|it|they|such|these|those)\b(?![^.]*\?)", "name the thing by its noun"),
    _habit(r"\b[Mm]end(?:s|ed|ing)?\b", "fix, correct, repair"),
    _habit(r"\bwants\b", "requires, needs"),
    _habit(r"\bshall\b", "must, should"),
    _habit(r"\bseldom\b", "rarely"),
    _habit(r"\bbut for\b", "except"),
)


def prose(text: str) -> str:
    """A page without code, addresses and headings; every line stays where it is."""
    without = FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)
    return CODE.sub(lambda code: "`" if code[0].startswith("`") else "", without)


def findings(text: str) -> list[tuple[int, str, str]]:
    """Each habit of a page: the line, the words, and what to write instead; in reading order."""
    read = prose(text)
    found = [(h, m) for h in HABITS for m in h.words.finditer(read)]
    lines = ((read.count("\n", 0, m.end()) + 1, m[0].strip(" |.:;*"), h.instead) for h, m in found)
    return sorted(lines)


def pages(root: Path) -> list[Path]:
    """Every document that people read, the changelog excepted."""
    above = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "RELEASING.md")
    return [*(root / name for name in above), *sorted((root / "docs").rglob("*.md"))]


WORDS = re.compile(r"[A-Za-z]+ [a-z]+ ")
"""A string that holds a sentence rather than a key, a query or a pattern."""
SQL = re.compile(r"\b(?:SELECT|WHERE|CASE|CAST|INSERT|CREATE|ORDER BY|ELSE|END)\b")


def source_prose(text: str) -> str:
    """The docstrings, comments and messages of a Python source; every line stays where it is, code becomes blank."""
    lines = [""] * (text.count("\n") + 2)
    middle = getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_text = (
            token.type in (tokenize.STRING, middle) and WORDS.search(token.string) and not SQL.search(token.string)
        )
        if token.type == tokenize.COMMENT or (is_text and not SQL.search(token.string)):
            for number, line in enumerate(token.string.split("\n")):
                lines[token.start[0] - 1 + number] += line.strip("#\"'rf") + " "
    return "\n".join(lines)


def sources(root: Path) -> list[Path]:
    """Every Python source of the product, the benchmarks, and the helpers and rules of the tests."""
    folders = ("include", "plugins", "dags", "spark_jobs", "benchmarks", "tests/support", "tests/rules")
    return sorted(path for folder in folders for path in (root / folder).rglob("*.py"))


def _of(path: Path) -> Iterator[str]:
    files = [path] if path.is_file() else sorted([*path.rglob("*.py"), *path.rglob("*.md")])
    for file in files:
        text = file.read_text()
        read = source_prose(text) if file.suffix == ".py" else text
        yield from (f"{file}:{line}: {words!r}: {instead}" for line, words, instead in findings(read))


if __name__ == "__main__":
    sys.stdout.writelines(f"{found}\n" for name in sys.argv[1:] for found in _of(Path(name)))
