"""Clocks of torch's devices: when the device, not the host, began and ended a module's work.

CUDA: an event is recorded on the module's stream and read after the step, when reading is free. Once per
step an event is recorded together with a reading of the host's clock (a clock pair) while the stream is
idle, so that device times can be mapped onto the host's clock. MPS: the device is synchronised before and
after each module, which changes the absolute times; the run says so. CPU: the host's clock.
"""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

from .names import Module
from .recorder import FIELDS, HostClock
from .session import clock_ns

MAX_BEHIND = 8  # most steps with outstanding events before the host synchronises

Device = Any  # torch.device
Event = Any  # torch.cuda.Event


def device_of(module: Module, default: Device) -> Device:
    for tensor in list(module.parameters()) + list(module.buffers()):
        return tensor.device
    return default


class MpsClock(HostClock):
    def __init__(self, torch: Any) -> None:
        self._synchronize: Callable[[], None] = torch.mps.synchronize

    def stamp(self) -> int:
        self._synchronize()
        return clock_ns()

    def stamp_of(self, module: Module) -> Callable[[], int]:
        return self.stamp

    def begin_step(self) -> int:
        return self.stamp()

    def finish(self) -> None:
        self._synchronize()


class CudaClock(HostClock):
    """A stamp is the number of an event; events go back to a pool when they have been read."""

    def __init__(self, torch: Any, device: Device) -> None:
        self.cuda, self.device = torch.cuda, device
        self.events: Dict[int, Tuple[Event, Device]] = {}  # by number
        self.pool: Dict[Device, List[Event]] = {}
        self.bases: Dict[Device, Tuple[int, Event]] = {}  # newest clock pair per device
        self._base_of: Dict[int, Dict[Device, Tuple[int, Event]]] = {}  # first stamp of a step -> its clock pairs
        self.next = 0
        self.waiting: List[int] = []  # last stamp of each step not read yet

    def _stamper(self, device: Device) -> Callable[[], int]:
        cuda, pool, events, clock = self.cuda, self.pool.setdefault(device, []), self.events, self
        stream_of = cuda.current_stream

        def stamp() -> int:
            event = pool.pop() if pool else cuda.Event(enable_timing=True)
            event.record(stream_of(device))
            clock.next = number = clock.next + 1
            events[number] = (event, device)
            return number

        return stamp

    def stamp_of(self, module: Module) -> Callable[[], int]:
        return self._stamper(device_of(module, self.device))

    def stamp(self) -> int:
        return self._stamper(self.device)()

    def _pair(self, device: Device, wait: bool) -> None:
        """A new clock pair, if the stream is idle or `wait` makes it so."""
        stream = self.cuda.current_stream(device)
        if wait:
            stream.synchronize()
        elif not stream.query():
            return
        event = self.cuda.Event(enable_timing=True)
        before = clock_ns()
        event.record(stream)
        event.synchronize()
        self.bases[device] = ((before + clock_ns()) // 2, event)

    def begin_step(self) -> int:
        devices = {device for _, device in self.events.values()} | {self.device}
        for device in devices:
            self._pair(device, wait=device not in self.bases)
        stamp = self.stamp()
        self._base_of[stamp] = dict(self.bases)
        return stamp

    def resolve(self, records: List[int]) -> List[int]:
        bases = self._base_of.pop(records[0], self.bases)
        out = list(records)
        for i in range(0, len(records), FIELDS):
            out[i], out[i + 1] = self._time(records[i], bases), self._time(records[i + 1], bases)
        self._recycle(records)
        return out

    def _time(self, stamp: int, bases: Dict[Device, Tuple[int, Event]]) -> int:
        event, device = self.events[stamp]
        host, base = bases.get(device) or self.bases[device]
        return host + int(base.elapsed_time(event) * 1e6)

    def _recycle(self, records: List[int]) -> None:
        """All events before the step's last, which is also the first event of the next step."""
        last = records[5]
        for number in [s for s in self.events if s < last]:
            event, device = self.events.pop(number)
            self.pool[device].append(event)

    def is_done(self, stamp: int) -> bool:
        event, _ = self.events[stamp]
        self.waiting.append(stamp)
        if event.query():
            self.waiting.clear()
            return True
        if len(self.waiting) > MAX_BEHIND:
            event.synchronize()
            self.waiting.clear()
            return True
        return False

    def finish(self) -> None:
        for device in {device for _, device in self.events.values()}:
            self.cuda.current_stream(device).synchronize()


def clock_for(torch: Any, model: Module) -> Tuple[HostClock, str]:
    """The clock of the device that holds the model's weights, and the device's name."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    if device.type == "cuda":
        return CudaClock(torch, device), "cuda"
    if device.type == "mps":
        return MpsClock(torch), "mps"
    return HostClock(), device.type
