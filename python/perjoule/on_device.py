"""Spans of one step that devices computed: nested as their times say, and given to the library with the host's span that
launched them.

The host's spans are the token and its sections. A device's spans lie in the section in which they began, and among
themselves in the innermost one of their device around them.
"""
from __future__ import annotations

import ctypes as c
import struct
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from . import _native as n

FIELDS = 4  # of a record: begin, end, kind and name, layer and detail
_SPAN = struct.Struct("=qqIIiIQ")  # pj_device_span
_DETAIL_STATS, _DETAIL_HAS = 16, 44  # offsets in pj_span_detail
_HALF = 0xFFFFFFFF


class Record(NamedTuple):
    begin: int
    end: int
    what: int
    where: int

    @property
    def kind(self) -> int:
        return self.what >> 32


def _signed(word: int) -> int:
    return word - (1 << 32) if word & 0x80000000 else word


def _order(record: Record) -> Tuple[int, int, int]:
    """Outer spans before those in them."""
    return record.begin, -record.end, record.kind


def _lies_in(inner: Record, outer: Record) -> bool:
    """One that sticks out of a coarser span by less than half of its length is clipped to it by the library."""
    if inner.kind < outer.kind or (inner.begin >= outer.end and inner.end > outer.end):
        return False
    beyond = inner.end - outer.end
    return beyond <= 0 or (inner.kind > outer.kind and 2 * beyond < inner.end - inner.begin)


def nest(records: Sequence[Record]) -> List[Tuple[Record, int]]:
    """The records in order, each with 1 + the index of the one around it, 0 for none."""
    out: List[Tuple[Record, int]] = []
    open_: List[int] = []
    for record in sorted(records, key=_order):
        while open_ and not _lies_in(record, out[open_[-1] - 1][0]):
            open_.pop()
        out.append((record, open_[-1] if open_ else 0))
        open_.append(len(out))
    return out


class Works:
    """The pj_work of every detail of a step."""

    def __init__(self, details: bytes) -> None:
        count = len(details) // n.DETAIL_BYTES
        self._details = c.create_string_buffer(details, len(details))
        base = c.addressof(self._details)
        self._works = (n.Work * count)()
        for i, work in enumerate(self._works):
            at = i * n.DETAIL_BYTES
            work.flops, work.bytes = struct.unpack_from("=dd", details, at)
            if struct.unpack_from("=I", details, at + _DETAIL_HAS)[0]:
                work.stats = c.cast(base + at + _DETAIL_STATS, c.POINTER(n.Stats))

    def address(self, detail: int) -> int:
        return c.addressof(self._works[detail - 1]) if detail else 0


def pack(nested: Sequence[Tuple[Record, int]], works: Works) -> bytes:
    """The records as an array of pj_device_span."""
    return b"".join(
        _SPAN.pack(r.begin, r.end, r.kind, r.what & _HALF, _signed(r.where & _HALF), parent, works.address(r.where >> 32))
        for r, parent in nested
    )


def _place(begin: int, sections: Sequence[Tuple[int, int]]) -> int:
    """The index of the section that contains the time; -1: none."""
    return next((i for i, (first, last) in enumerate(sections) if first <= begin < last), -1)


def grouped(records: Sequence[int], devices: Sequence[Any],
            sections: Sequence[Tuple[int, int]]) -> Dict[Tuple[Any, int], List[Record]]:
    """The records by device and by section, -1 for those in none of them; without device those of the host."""
    out: Dict[Tuple[Any, int], List[Record]] = {}
    for i, device in enumerate(devices):
        record = Record(*records[i * FIELDS:(i + 1) * FIELDS])
        out.setdefault((device, _place(record.begin, sections)), []).append(record)
    return out
