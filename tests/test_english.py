"""Documents avoid the habits of `tests/english.py`; pages that are still to be rewritten are listed here."""

from pathlib import Path

from tests.english import HABITS, findings, pages

ROOT = Path(__file__).resolve().parents[1]
REWRITE = {
    "docs/adr/0000-template.md",
    "docs/adr/0002-spark-writes-deltalake-commits.md",
    "docs/adr/0003-final-revocation.md",
    "docs/adr/0004-log-structured-state.md",
    "docs/adr/0005-strict-json.md",
    "docs/adr/0006-order-and-expiry-in-one-column.md",
    "docs/adr/0007-resolve-merges-only-what-moved.md",
    "docs/adr/0008-compaction-bounds-space-and-files.md",
    "docs/adr/0009-timelines.md",
    "docs/adr/0010-rooms-of-the-coordinator.md",
    "docs/adr/0011-generated-code-outlives-sessions.md",
    "docs/adr/0012-released-checkpoints-keep-their-manifests.md",
    "docs/adr/0013-retention-deletes-files-itself.md",
    "docs/adr/0014-pages-read-manifests-once.md",
    "docs/adr/0015-erasure-rewrites-files-and-revises-manifests.md",
    "docs/adr/0016-one-path-to-disk-and-bucket.md",
    "docs/adr/0017-what-never-changes-is-read-once.md",
    "docs/adr/0018-a-fork-ends-by-a-closing-without-a-successor.md",
    "docs/adr/0019-spark-workers-resolve-ranges-of-key-groups.md",
    "docs/adr/0020-a-driver-maps-its-classes.md",
    "docs/adr/0021-small-batches-are-folded-in-passing.md",
    "docs/adr/0022-sinks-know-which-offsets-they-cover.md",
    "docs/adr/0023-a-writer-mends-what-a-power-cut-tore.md",
    "docs/adr/0024-a-restore-claims-its-place-too.md",
    "docs/adr/0025-order-is-decided-before-it-is-stored.md",
    "docs/adr/0026-a-damaged-manifest-stops-its-own-line.md",
    "docs/adr/0029-a-refused-record-waits-for-a-person.md",
    "docs/architecture.md",
    "docs/benchmarks/README.md",
    "docs/benchmarks/airflow-latency.md",
    "docs/benchmarks/checkpoint-cost.md",
    "docs/benchmarks/faults.md",
    "docs/benchmarks/peers.md",
    "docs/benchmarks/restore-points.md",
    "docs/benchmarks/retention-costs.md",
    "docs/benchmarks/scale.md",
    "docs/benchmarks/state-costs.md",
    "docs/deploy.md",
    "docs/flink-rows.md",
    "docs/glossary.md",
    "docs/guarantees.md",
    "docs/rest.md",
    "docs/scale.md",
}
"""Pages that are still to be rewritten. This list only ever gets shorter."""
MOST = 43
"""How long the list is: lower it with the list, never raise it."""

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
        name = str(page.relative_to(ROOT))
        if name not in REWRITE:
            found += [f"{name}:{line}: {words!r}: {instead}" for line, words, instead in findings(page.read_text())]
    assert not found, "rewrite the sentence:\n" + "\n".join(found)


def test_the_list_of_pages_that_wait_only_gets_shorter() -> None:
    names = {str(page.relative_to(ROOT)) for page in pages(ROOT)}
    assert len(REWRITE) <= MOST
    assert names >= REWRITE, "these pages are gone: take them out"
    done = sorted(name for name in REWRITE if not findings((ROOT / name).read_text()))
    assert not done, f"these pages have none of the habits: take them out, and lower MOST: {done}"


def test_every_habit_is_found_and_nothing_else() -> None:
    for sentence, words in SAMPLES.items():
        assert [found for _, found, _ in findings(sentence)] == [words], sentence
    assert all(
        any(h.words.search(sentence) for sentence in (*SAMPLES, "one's own", "It shall.", "Seldom, seldom."))
        for h in HABITS
    )
    assert findings(CLEAN) == []
