"""The records of a pipeline in a bucket, listed once for all answers of a process, and only where they may change.

A page asks for several answers when it opens, and every few seconds after that. A listing has a thousand keys per
request, so thousands of checkpoints take many requests, and their XML much processor time. Most of it never changes:
keys of `ids/` and `timelines/` are only added, at the end. So a long folder is cut into chunks of old keys and a tail.
Each refresh lists the tails, all short folders, and one of the chunks, at the same time. The first one looks for the
ends of long folders and leaves the chunks between unlisted: an answer that needs one lists it, and every refresh lists
the newest of each folder.

A new record is seen at once. A record that vanishes from a chunk, or is replaced in it, is seen when the chunk is
listed again: in turn, or at once if anything in a short folder has changed, or a tail has lost a key. Retention,
erasures and restores from a backup leave such traces (adr/0078, adr/0079).
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import groupby
from threading import Lock
from typing import Protocol

from tidemark.storage.key_survey import AT_ONCE, PAGE, PART, TAIL, KeySurvey, Page, Span, folder_of, last_key

LONG = 400
"""A folder with more keys than this is long; its last few keys are its tail."""
_GAPS = 4
"""How many gaps a refresh lists at most."""
_GROWTH = 64
"""How many keys more than the last time a request asks for."""


class PagedStore(Protocol):
    """A store that lists in pages."""

    def page(self, after: str, most: int, folder: str = "") -> Page:
        """Returns the first keys after a key with their stamps, in order, and whether there are more.

        Args:
            after: the key; it need not exist.
            most: how many keys at most.
            folder: only keys of this folder, named with its final slash.
        """


@dataclass(frozen=True, slots=True)
class RecordSnapshot:
    """The records of a moment, without some old ones that are not listed yet.

    Attributes:
        stamps: stamp by key.
        keys: the keys in order.
        gaps: where there may be more keys, in order. Each lies in one long folder, behind its first and before its
            last keys.
    """

    stamps: Mapping[str, str] = field(default_factory=dict)
    keys: Sequence[str] = ()
    gaps: tuple[Span, ...] = ()

    def place_of(self, key: str) -> int:
        """The place of a key among all keys."""
        return bisect_left(self.keys, key)

    def below(self, prefix: str) -> Sequence[str]:
        """The listed keys that begin with a prefix."""
        return self.keys[bisect_left(self.keys, prefix) : bisect_left(self.keys, f"{prefix}\U0010ffff")]

    def newest(self, prefix: str) -> tuple[Mapping[str, str], bool]:
        """The last records whose keys begin with a prefix, behind all gaps; and whether these are all."""
        found, gaps = self.below(prefix), self.gaps_of(prefix)
        last = found[bisect_left(found, gaps[-1].before) :] if gaps else found
        return {key: self.stamps[key] for key in last}, not gaps

    def around(self, key: str) -> tuple[Sequence[str], bool, bool]:
        """The keys of a folder around a key that is in no gap, as far as nothing between is unlisted.

        Returns:
            The keys, and whether they include the first and the last key of the folder.
        """
        folder = f"{folder_of(key)}/"
        found, gaps = self.below(folder), self.gaps_of(folder)
        begin = max((gap.before for gap in gaps if gap.before <= key), default="")
        end = min((gap.after for gap in gaps if gap.after >= key), default="")
        return Span(begin, f"{end}\0" if end else "").clip(found), not begin, not end

    def gaps_of(self, prefix: str) -> Sequence[Span]:
        """The gaps in which keys that begin with a prefix may lie."""
        return [gap for gap in self.gaps if gap.meets(prefix)]

    def ends(self, prefix: str) -> Iterator[str]:
        """The first and the last key of each folder whose keys begin with a prefix."""
        at = bisect_left(self.keys, prefix)
        while at < len(self.keys) and self.keys[at].startswith(prefix):
            end = bisect_left(self.keys, f"{folder_of(self.keys[at])}0")
            yield from (self.keys[at], self.keys[end - 1])
            at = end

    def within(self, span: Span) -> Mapping[str, str]:
        """The listed records of a span."""
        return {key: self.stamps[key] for key in span.clip(self.keys)}


_ALL = Span("", "")


class SharedListing:
    """The listing that all answers of a process share. Thread-safe.

    Args:
        store: the store itself.
        skipped: folders that are left out.
        crossed: those of them with so few objects that to list these costs less than a request more.
    """

    def __init__(self, store: PagedStore, skipped: Collection[str], crossed: Collection[str] = ()) -> None:
        self._skipped = frozenset(skipped)
        self._store, self._lock, self._door = store, Lock(), Lock()
        bounds = ["", *(end for name in sorted({*skipped} - {*crossed}) for end in (f"{name}/", f"{name}0")), ""]
        self._whole = [Span(after, before) for after, before in zip(bounds[::2], bounds[1::2], strict=True)]
        self._hot: dict[Span, Mapping[str, str]] = {}
        self._cold: dict[Span, Mapping[str, str] | None] = {}
        """Chunks; None = not listed yet."""
        self._long: frozenset[str] = frozenset()
        self._snapshot = RecordSnapshot()
        self._arrived = self._served = self._turn = self._cut_at = 0

    def snapshot(self) -> RecordSnapshot:
        """The records as of a moment after this call; answers that wait for each other share a refresh.

        Raises:
            StoreError: they cannot be listed.
        """
        with self._door:
            self._arrived += 1
            mine = self._arrived
        with self._lock:
            if self._served < mine:
                with self._door:
                    serves = self._arrived
                self._refresh()
                self._served = serves
            return self._snapshot

    def fill(self, seen: RecordSnapshot, gaps: Iterable[Span]) -> RecordSnapshot:
        """Returns a snapshot with the records in some of its gaps, as of a later moment; each is listed once.

        Raises:
            StoreError: they cannot be listed.
        """
        with self._lock:
            known = {gap: self._cold.get(gap) for gap in gaps}
            listed = self._list({gap: PAGE for gap, records in known.items() if records is None})
            filled = {gap: listed.within(gap) if records is None else records for gap, records in known.items()}
            # Another answer may have cut the records again since.
            self._cold.update({gap: records for gap, records in filled.items() if gap in self._cold})
            self._snapshot = self._joined()
        others = tuple(gap for gap in seen.gaps if gap not in filled)
        stamps = {key: stamp for part in (seen.stamps, *filled.values()) for key, stamp in part.items()}
        return replace(order_records(stamps), gaps=others)

    def _refresh(self) -> None:
        if not self._hot:
            self._cut(self._survey())
            return
        cold, turn = [*self._cold], self._choose_chunks()
        found = self._list({span: len(self._hot[span]) + _GROWTH for span in self._hot} | dict.fromkeys(turn, PAGE))
        hot = {span: found.within(span) for span in self._hot}
        if self._cold and self._is_announced(hot):
            others = self._list(dict.fromkeys((span for span in cold if span not in turn), PAGE))
            self._cut(order_records({**others.stamps, **found.stamps}))
            return
        changed = {span: found.within(span) for span in turn}
        if hot == self._hot and all(keys == self._cold[span] for span, keys in changed.items()):
            return
        self._hot, self._cold = hot, {**self._cold, **changed}
        self._snapshot = self._joined()
        if sum(map(len, hot.values())) > self._cut_at + LONG:
            self._cut(self._snapshot)

    def _choose_chunks(self) -> list[Span]:
        """The chunks to list next: the newest gap of each folder, or one chunk in turn if there is no gap."""
        gaps = {folder_of(gap.after): gap for gap in self._snapshot.gaps}
        if gaps or not self._cold:
            return [*gaps.values()][:_GAPS]
        self._turn += 1
        return [[*self._cold][self._turn % len(self._cold)]]

    def _joined(self) -> RecordSnapshot:
        """The known records of all spans."""
        parts = (*(part for part in self._cold.values() if part is not None), *self._hot.values())
        records = order_records({key: stamp for part in parts for key, stamp in part.items()})
        return replace(records, gaps=tuple(span for span, part in self._cold.items() if part is None))

    def _is_announced(self, hot: Mapping[Span, Mapping[str, str]]) -> bool:
        """Whether more has happened than that a long folder has grown at its end."""
        for span, keys in hot.items():
            before = self._hot[span]
            if any(keys.get(key) != stamp for key, stamp in before.items()):
                return True
            if any(folder_of(key) not in self._long for key in keys.keys() - before.keys()):
                return True
        return False

    def _cut(self, records: RecordSnapshot) -> None:
        """Cuts the records into spans that are listed every time, and chunks of long folders."""
        hot, cold, long = list[Span](), dict[Span, Mapping[str, str] | None](), set[str]()
        for whole in self._whole:
            after = whole.after
            for folder, group in groupby(whole.clip(records.keys), folder_of):
                names, gaps = list(group), records.gaps_of(f"{folder}/")
                if len(names) <= LONG and not gaps:
                    continue
                long.add(folder)
                hot.append(Span(after, names[0]))
                chunks = list(_chunks(names, gaps))
                cold |= {span: None if span in gaps else records.within(span) for span in chunks}
                after = names[-TAIL - 1] if chunks[-1] not in gaps else chunks[-1].before
            hot.append(Span(after, whole.before))
        self._hot, self._cold = {span: records.within(span) for span in hot}, cold
        self._long, self._snapshot = frozenset(long), records
        self._cut_at = sum(map(len, self._hot.values()))

    def _list(self, spans: Mapping[Span, int]) -> RecordSnapshot:
        """Lists spans with several requests at a time, each for so many keys at first."""
        found, waiting = dict[str, str](), list(spans.items())
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while waiting:
                pages = pool.map(lambda asked: self._store.page(asked[0].after, min(asked[1], PAGE)), waiting)
                further = list[tuple[Span, int]]()
                for (span, _), (page, is_cut) in zip(waiting, pages, strict=True):
                    found |= self._own(page, span)
                    if is_cut and span.takes(last := last_key(page)):
                        further.append((Span(last, span.before), PAGE))
                waiting = further
        return order_records(found)

    def _own(self, page: Mapping[str, str], span: Span) -> dict[str, str]:
        """The records of a page that lie in a span, without those of skipped folders."""
        return {key: stamp for key, stamp in page.items() if span.takes(key) and not self._is_skipped(key)}

    def _survey(self) -> RecordSnapshot:
        """All records but those in the middle of long folders."""
        made = KeySurvey(self._store.page)
        made.list_spans(self._whole)
        gaps = sorted((gap for gap in made.gaps if not self._is_skipped(gap.after)), key=lambda gap: gap.after)
        return replace(order_records(self._own(made.found, _ALL)), gaps=tuple(gaps))

    def _is_skipped(self, key: str) -> bool:
        return key.partition("/")[0] in self._skipped


def order_records(records: Mapping[str, str]) -> RecordSnapshot:
    """Returns a snapshot of records, given as stamps by key."""
    keys = sorted(records)
    return RecordSnapshot({key: records[key] for key in keys}, keys)


def _chunks(names: Sequence[str], gaps: Sequence[Span]) -> Iterator[Span]:
    """Cuts a long folder, of which some names are known, into chunks up to its tail; gaps are chunks, too."""
    begin, at = names[0][:-1], 0  # nothing lies between a key and the same without its last letter
    for gap in gaps:
        end = bisect_left(names, gap.before, at)
        for cut in names[at:end][PART - 1 : -1 : PART]:
            yield _up_to(begin, cut)
            begin = cut
        if begin < gap.after:
            yield _up_to(begin, gap.after)
        yield gap
        begin, at = gap.before, end
    rest = names[at : max(at, len(names) - TAIL)]
    for cut in (*rest[PART - 1 : -1 : PART], *rest[-1:]):
        yield _up_to(begin, cut)
        begin = cut


def _up_to(begin: str, last: str) -> Span:
    return Span(begin, f"{last}\0")
