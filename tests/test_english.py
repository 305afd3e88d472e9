"""Documents and sources avoid the habits of `tests/english.py`."""

from pathlib import Path

from tests.english import HABITS, findings, pages, source_prose, sources

ROOT = Path(__file__).resolve().parents[1]

SAMPLES = {
    "Nobody answers whether it was written.": "Nobody",
    "Who is not logged in gets 401.": "Who",
    "The page tells the offsets.": "tells",
    "It runs with the code of now.": "of now",
    "The plan is made anew.": "anew",
    "A fork grows beside the live timeline.": "beside",
    "The others go on.": "go on",
    "See what comes to the same.": "comes to",
    "The id stands in the manifest.": "stands",
    "It names the checksum of what it replaces.": "what it",
    "Mend the record type.": "Mend",
    "It wants `--force`.": "wants",
    "All files but for one.": "but for",
}
CLEAN = """# Whoever reads a heading, which is an address

Who may write? You understand what you see: `tidemark state lineage` shows it, and [a link](what-it-is.md) leads there.

```bash
echo nobody
```
"""


def test_documents_avoid_the_habits() -> None:
    found = []
    for page in pages(ROOT):
        name = page.relative_to(ROOT)
        found += [f"{name}:{line}: {words!r}: {instead}" for line, words, instead in findings(page.read_text())]
    assert not found, "rewrite the sentence:\n" + "\n".join(found)


def test_sources_avoid_the_habits() -> None:
    """Docstrings, comments and messages of the product."""
    found = []
    for source in sources(ROOT):
        text = source_prose(source.read_text())
        name = source.relative_to(ROOT)
        found += [f"{name}:{line}: {words!r}: {instead}" for line, words, instead in findings(text)]
    assert not found, "rewrite the sentence:\n" + "\n".join(found)


def test_every_habit_is_found_and_nothing_else() -> None:
    for sentence, words in SAMPLES.items():
        assert [found for _, found, _ in findings(sentence)] == [words], sentence
    assert all(
        any(h.words.search(sentence) for sentence in (*SAMPLES, "one's own", "It shall.", "Seldom, seldom."))
        for h in HABITS
    )
    assert findings(CLEAN) == []
