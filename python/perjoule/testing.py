"""A fixture of pytest, which finds it through the package's entry point:

    def test_answer(perjoule_measure):
        with perjoule_measure("answer", max_joules=5) as m:
            answer()
        print(m.joules)

Measurements appear in pytest's summary, and as properties of the test in JUnit files (`--junit-xml`).
"""
from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Iterator, List, Optional, Tuple

import pytest

from .window import Measured, measure

_KEY: Any = pytest.StashKey[List[Tuple[str, Measured]]]() if hasattr(pytest, "StashKey") else None


def _judge(measured: Measured, max_joules: float) -> None:
    """A limit is exceeded where the whole interval is above it; what was not measured cannot be judged."""
    lo = measured.lo
    if lo is None or measured.result is None:
        source = "not measured" if measured.result is None else measured.result.energy_source
        pytest.skip(f"{measured.name or 'the block'} cannot be judged: energy {source}")
    elif lo > max_joules:
        pytest.fail(f"{measured}: more than {max_joules:g} J", pytrace=False)


@pytest.fixture
def perjoule_measure(request: Any, record_property: Callable[[str, object], None]) -> Callable[..., ContextManager[Measured]]:
    """measure(), with `max_joules`: the test fails if the block certainly took more, and is skipped where no sensor
    measured it."""

    @contextlib.contextmanager
    def block(name: Optional[str] = None, max_joules: Optional[float] = None) -> Iterator[Measured]:
        with measure(name) as measured:
            yield measured
        label = f"joules_{name}" if name else "joules"
        record_property(label, measured.joules)
        request.config.stash.setdefault(_KEY, []).append((request.node.nodeid, measured))
        if max_joules is not None:
            _judge(measured, max_joules)

    return block


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    seen = config.stash.get(_KEY, [])
    if seen:
        terminalreporter.section("energy")
    for node, measured in seen:
        terminalreporter.line(f"{node}  {measured}")
