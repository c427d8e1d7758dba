"""Gives the records of a pass their FLOPs and bytes. The modules of a decode pass have the same shapes as those of the pass
before, so each is looked at once; only what attention reads grows.
"""
from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

from .statistics import AMOUNT, DETAIL, FIELDS, Gap, Look
from .work import Pass

MOST = 64  # kinds of passes that are remembered
Kind = Tuple[int, int, int, bool]


class Known(NamedTuple):
    """A pass that was looked at."""

    words: List[int]  # of its records
    numbers: List[int]  # the records' fields that refer to details
    details: bytearray
    gaps: List[Gap]


class Shapes:
    """What is known of the passes of one model."""

    def __init__(self) -> None:
        self._known: Dict[Kind, Optional[Known]] = {}  # None: passes of this kind differ from each other
        self._kind: Optional[Kind] = None
        self._of: Optional[Pass] = None

    def begin_pass(self, level: int, of: Optional[Pass], statistics: Optional[Look]) -> Optional[Look]:
        """Returns what is to look at the modules of the pass, if anything."""
        self._of = of
        # a prompt's pass is long enough to be looked at each time
        self._kind = (level, of.rows, of.query, of.causal) if of is not None and of.cached else None
        if statistics is not None:
            statistics.of = of
            return statistics
        if of is None or self._kind is not None and self._known.get(self._kind) is not None:
            return None
        return Look(None, 0, of)

    def end_pass(self, records: List[int], look: Optional[Look]) -> bytearray:
        """Returns the details of the records, which refer to them by number."""
        kind, words = self._kind, records[2::FIELDS]
        if look is not None:
            details = look.details()
            if kind is not None and look.of is not None and len(self._known) < MOST:
                self._known.setdefault(kind, Known(words, records[FIELDS - 1::FIELDS], details[:], look.gaps))
            return details
        known = self._known.get(kind) if kind is not None else None
        if kind is None or known is None or self._of is None:
            return bytearray()
        if known.words != words:
            self._known[kind] = None
            return bytearray()
        records[FIELDS - 1::FIELDS] = known.numbers
        details = known.details[:]
        for number, attention, shape, size in known.gaps:
            AMOUNT.pack_into(details, number * DETAIL.size, *attention.amount(self._of, shape, size))
        return details
