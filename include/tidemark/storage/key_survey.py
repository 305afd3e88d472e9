"""Lists keys of a bucket, but not the middle of long folders, with a few round trips however long the folders are.

A listing begins behind any key, but a store does not say which key of a folder is its last. Where keys are numbered,
one asks for a single key behind each of several numbers at a time: behind the last key there is none. The numbers are
far apart at first if the folder is longer than that, then closer (adr/0079).
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

AT_ONCE = 32
"""Requests at a time."""
PAGE, FIRST_PAGE = 1000, 250
"""Keys of a request at most."""
TAIL = 50
"""So many keys of a folder at the end of a page say that the folder may be long."""
PARTS, PART = 8, 950
"""The end is looked for in so many places at a time, at least so many numbers apart."""
_NUMBERED = re.compile(r"(.*/)(\d+)\D.*")

Page = tuple[Mapping[str, str], bool]
"""Stamps by key, in order, and whether more keys follow."""
Asked = tuple[str, int, str]
"""A page: the key before it, its most keys, and the folder to which it is restricted, with its final slash, or ''."""
Steps = Generator[Sequence[Asked], Sequence[Page], None]
"""Asks for pages and gets them."""


@dataclass(frozen=True, slots=True)
class Span:
    """The keys between two bounds, both excluded; without an upper bound if `before` is empty."""

    after: str
    before: str

    def takes(self, key: str) -> bool:
        """Whether a key lies in it."""
        return key > self.after and (not self.before or key < self.before)

    def clip(self, keys: Sequence[str]) -> Sequence[str]:
        """Those that lie in it, of keys in order."""
        return keys[bisect_right(keys, self.after) : bisect_left(keys, self.before) if self.before else len(keys)]

    def meets(self, prefix: str) -> bool:
        """Whether a key that begins with a prefix could lie in it."""
        return self.after < f"{prefix}\U0010ffff" and (not self.before or self.before > prefix)


@dataclass
class KeySurvey:
    """One survey.

    Attributes:
        page: asks the store for a page.
        found: stamps by key.
        gaps: where more keys may lie, in no order. Each is in one folder, behind its first and before its last keys.
    """

    page: Callable[[str, int, str], Page]
    found: dict[str, str] = field(default_factory=dict)
    gaps: list[Span] = field(default_factory=list)
    _begun: list[Steps] = field(default_factory=list)

    def list_spans(self, spans: Sequence[Span]) -> None:
        """Lists spans; the pages of all spans are asked for at the same time, step by step.

        Raises:
            StoreError: the store cannot be listed.
        """
        self._begun = [self._survey(span) for span in spans]
        asking = list[tuple[Steps, Sequence[Asked]]]()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while self._begun or asking:
                begun, self._begun = self._begun, []
                asking += [(steps, next(steps)) for steps in begun]
                pages = pool.map(lambda asked: self.page(*asked), [one for _, asked in asking for one in asked])
                answered, asking = [(steps, [next(pages) for _ in asked]) for steps, asked in asking], []
                for steps, got in answered:
                    with suppress(StopIteration):
                        asking.append((steps, steps.send(got)))

    def _survey(self, span: Span) -> Steps:
        """Lists a span; where a folder looks long, its end is looked for, and the listing jumps over it."""
        after, most = span.after, FIRST_PAGE
        while True:
            ((page, is_cut),) = yield [(after, most, "")]
            self.found |= {key: stamp for key, stamp in page.items() if span.takes(key)}
            last = last_key(page)
            if not is_cut or not span.takes(last):
                return
            after, most = last, PAGE
            folder = folder_of(last)
            if _NUMBERED.fullmatch(last) and sum(folder_of(key) == folder for key in page) >= TAIL:
                self._begun.append(self._find_end(last))
                after, most = f"{folder}0", FIRST_PAGE  # the character after the slash

    def _find_end(self, last: str) -> Steps:
        """Finds the last keys of a folder, behind one of its keys."""
        named = _NUMBERED.fullmatch(last)
        assert named is not None  # noqa: S101  (for the type checker)
        folder, digits = named.groups()
        number = int(digits)
        end, step = number, PART

        def behind(number: int) -> str:
            return f"{folder}{number:0{len(digits)}d}"

        while True:
            places = [end + n * step for n in range(1, PARTS + 1) if len(behind(end + n * step)) == len(behind(number))]
            pages = yield [(behind(place), 1, folder) for place in places]
            reached = [at for at, (page, _) in zip(places, pages, strict=True) if page]
            end = max(reached, default=end)
            if len(reached) == PARTS:
                step *= PARTS  # the folder may be longer
            elif step == PART:
                break
            else:
                step //= PARTS
        begin = max(number, end - TAIL)  # so that the last keys are TAIL at least
        bounds = [last, *(behind(n) for n in range(number + PART, begin, PART)), *([behind(begin)] * (begin > number))]
        self.gaps += [Span(after, before) for after, before in zip(bounds, bounds[1:], strict=False)]
        after, is_cut = bounds[-1], True
        while is_cut:
            ((page, is_cut),) = yield [(after, PAGE, folder)]
            self.found |= page
            after = last_key(page)


def folder_of(key: str) -> str:
    """The folder of a key, without its final slash."""
    return key.rpartition("/")[0]


def last_key(page: Mapping[str, str]) -> str:
    """The last key of a page; empty if it has none."""
    return next(reversed([*page]), "")
