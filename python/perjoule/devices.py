"""Clocks of torch's devices: when the device, not the host, began and ended a module's work.

CUDA: an event is recorded on the module's stream and read when the device has passed it, so that nothing waits for it.
Device times are mapped onto the host's clock by clock pairs: about once per second an event is recorded on a stream
of our own, on which nothing else runs, between two readings of the host's clock. While a stream is being captured into
a CUDA graph no event is recorded and none is asked for: either would invalidate the program's capture.

Other accelerators (MPS, XPU, ...): the device is synchronised before and after each module, which changes the absolute
times; the run says so. CPU: the host's clock.
"""
from __future__ import annotations

import contextlib
import sys
from collections import deque
from typing import Any, Callable, ContextManager, Deque, Dict, Iterable, List, NamedTuple, Optional, Tuple

from .names import Module
from .recorder import LOST, HostClock
from .session import clock_ns
from .statistics import FIELDS

PAIR_EVERY_NS = 1_000_000_000  # how long a clock pair is used: event times are 32-bit floats of milliseconds
PAIR_TRIES = 3  # of which the tightest pair counts
PAIRS_KEPT = 32
COST_ROUNDS, COST_STAMPS = 5, 8
BEHIND_NS = 20_000  # an event that the device passes within this time was waited for: its stream was empty

Device = Any  # torch.device
Event = Any  # torch.cuda.Event
Stream = Any  # torch.cuda.Stream


def _execution_device(torch: Any, module: Module) -> Device:
    """Where accelerate's hook has a module computed, whose weights lie on the CPU, on a disk or nowhere (meta)."""
    device = getattr(getattr(module, "_hf_hook", None), "execution_device", None)
    return None if device is None else torch.device(device)


def _devices_of(torch: Any, module: Module) -> Iterable[Device]:
    device = _execution_device(torch, module)
    if device is not None:
        yield device
    for tensor in list(module.parameters()) + list(module.buffers()):
        yield tensor.device


class SynchronisedClock(HostClock):
    """The host's clock, read when the device has done all its work."""

    def __init__(self, synchronize: Callable[[], None], name: str) -> None:
        self._synchronize = synchronize
        self.how = f"host, with {name} synchronised before and after each module"

    def stamp(self) -> int:
        self._synchronize()
        return clock_ns()

    def stamp_of(self, module: Module) -> Callable[[], int]:
        return self.stamp

    def begin_step(self, after: Optional[int] = None) -> int:
        return self.stamp()

    def finish(self) -> bool:
        self._synchronize()
        return True


Stamp = Tuple[Event, Device, int]  # an event, where it was recorded, and when on the host's clock; plain, to be cheap


def _stream_getter(torch: Any, device: Device) -> Callable[[], Tuple[int, Stream]]:
    """A function that returns the handle and the object of a device's current stream. torch makes an object at each
    call, which costs as much as a hook, so those known are kept by their handles."""
    current = torch.cuda.current_stream
    handle_of = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    index: Optional[int] = device.index
    known: Dict[int, Stream] = {}

    def slow() -> Tuple[int, Stream]:
        stream = current(device)
        return stream.cuda_stream, stream

    def fast() -> Tuple[int, Stream]:
        handle: int = handle_of(index)  # type: ignore[misc]
        stream = known.get(handle)
        if stream is None:
            stream = known[handle] = current(device)
        return handle, stream

    return slow if handle_of is None or index is None else fast


def _of_device(stamps: Dict[int, Stamp], device: Device, devices: int) -> Dict[int, Stamp]:
    """Those of one of so many devices."""
    return stamps if devices == 1 else {number: stamp for number, stamp in stamps.items() if stamp[1] is device}


class Pair(NamedTuple):
    """A moment on the host's clock, and an event of that moment."""

    host_ns: int
    event: Event
    width_ns: int  # between the readings of the host's clock


class CudaClock(HostClock):
    """A stamp is the number of an event; events go back to a pool when they have been read."""

    is_late = True
    how = "CUDA events"

    def __init__(self, torch: Any, device: Device) -> None:
        self.torch, self.cuda, self.device = torch, torch.cuda, device
        self.events: Dict[int, Stamp] = {}  # by number
        self.pool: Dict[Device, List[Event]] = {}  # of every device that has a module of the model
        self.pairs: Dict[Device, Deque[Pair]] = {}  # of each device, oldest first
        self.error: Optional[Exception] = None  # of a stamp: raised at the end of the pass, not in the program's modules
        self.waited_ns = self.timed_ns = 0  # modules' time: of those that the host launched too slowly, and of all
        self._stampers: Dict[Device, Callable[[], int]] = {}
        self._newest: Dict[Device, Dict[int, int]] = {}  # the newest stamp of each stream since the step before
        self._own: Dict[Device, Stream] = {}
        self._paired_ns = 0
        self.clock_error_ns = 0  # of its times, 1 sigma
        self._next = self._read = 0  # newest stamp, newest that was read
        self.stamp = self._stamper(device)  # type: ignore[method-assign]

    # ---- stamps ----

    def _stamper(self, device: Device) -> Callable[[], int]:
        if device not in self._stampers:
            self._stampers[device] = self._make_stamper(device)
        return self._stampers[device]

    def _make_stamper(self, device: Device) -> Callable[[], int]:
        cuda, pool, events, clock = self.cuda, self.pool.setdefault(device, []), self.events, self
        stream_of, capturing = _stream_getter(self.torch, device), cuda.is_current_stream_capturing
        newest = self._newest.setdefault(device, {})

        def stamp() -> int:
            try:
                if capturing():
                    return LOST
                event = pool.pop() if pool else cuda.Event(enable_timing=True)
                handle, stream = stream_of()
                event.record(stream)
                clock._next = number = clock._next + 1
                newest[handle] = number
                events[number] = event, device, clock_ns()
                return number
            except Exception as e:
                clock.error = e
                return LOST

        return stamp

    def stamp_of(self, module: Module) -> Callable[[], int]:
        """Stamps on the stream of the module's device. A module elsewhere (on the CPU, on meta) is timed on the model's."""
        return self._stamper(self.device_of(module))

    def device_of(self, module: Optional[Module]) -> Device:
        devices = () if module is None else _devices_of(self.torch, module)
        return next((d for d in devices if d.type == "cuda"), self.device)

    def begin_step(self, after: Optional[int] = None) -> int:
        if clock_ns() - self._paired_ns > PAIR_EVERY_NS or len(self.pairs) < len(self.pool):
            self._pair_all()
        return after if after and after in self.events else self.stamp()

    def is_capturing(self) -> bool:
        return bool(self.cuda.is_current_stream_capturing())

    # ---- pairs, and a stream of our own ----

    def _own_stream(self, device: Device) -> Stream:
        if device not in self._own:
            self._own[device] = self.cuda.Stream(device=device)
        return self._own[device]

    def aside(self, tensor: Any) -> ContextManager[Any]:
        """Within it a tensor that is complete can be read without waiting for what the program has launched since: what
        is launched goes to a stream of our own."""
        if tensor.device.type != "cuda":
            return contextlib.nullcontext()
        return self.cuda.stream(self._own_stream(tensor.device))  # type: ignore[no-any-return]

    def _pair_all(self) -> None:
        self._paired_ns = clock_ns()
        for device in self.pool:
            best = min((self._pair(device) for _ in range(PAIR_TRIES)), key=lambda pair: pair.width_ns)
            self.pairs.setdefault(device, deque(maxlen=PAIRS_KEPT)).append(best)

    def _pair(self, device: Device) -> Pair:
        event, stream = self.cuda.Event(enable_timing=True), self._own_stream(device)
        before = clock_ns()
        event.record(stream)
        event.synchronize()
        after = clock_ns()
        return Pair((before + after) // 2, event, after - before)

    def cost_ns(self) -> int:
        """What a stamp and its reading cost the host: the cheapest of several rounds."""
        return min(self._cost_of_round() for _ in range(COST_ROUNDS)) // COST_STAMPS

    def _cost_of_round(self) -> int:
        begin = clock_ns()
        numbers = [self.stamp() for _ in range(COST_STAMPS)]
        took = clock_ns() - begin
        self.wait(self.seal())
        if LOST in numbers:
            return took
        begin = clock_ns()
        base = self.events[numbers[0]][0]
        for number in numbers:
            base.elapsed_time(self.events[number][0])
        self._recycle(self._next + 1)
        return took + clock_ns() - begin

    # ---- reading ----

    def seal(self) -> List[int]:
        """The newest stamp of each stream since the step before: when the device has passed these, all can be read."""
        found: List[int] = []
        for newest in self._newest.values():
            found += newest.values()
            newest.clear()
        return found

    def is_done(self, stamps: List[int]) -> bool:
        if self.is_capturing():
            return False
        return all(self.events[s][0].query() for s in stamps if s in self.events)

    def wait(self, stamps: List[int]) -> None:
        for s in stamps:
            if s in self.events:
                self.events[s][0].synchronize()

    def resolve(self, records: List[int]) -> List[int]:
        events, first, last = self.events, records[0], records[FIELDS + 1]
        if any(mark not in events for mark in (first, records[1], last)):
            return []
        self._recycle(first)
        stamps = {number: events.pop(number) for number in range(first, last) if number in events}
        stamps[last] = events[last]  # the first of the next step
        times = self._times(stamps, stamps[first][2])
        out = list(records)
        for field in (0, 1):
            out[field::FIELDS] = map(times.__getitem__, records[field::FIELDS])
        self._note_waiting(records, out, stamps)
        del stamps[last]
        self._pool(stamps)
        self._read = last - 1
        return out

    def _times(self, stamps: Dict[int, Stamp], began_ns: int) -> Dict[int, int]:
        """The time of each stamp of a step."""
        times = {LOST: 0}
        used = self.pool if len(self.pool) == 1 else {stamp[1] for stamp in stamps.values()}
        pairs = {device: self._pair_before(device, began_ns) for device in used}
        for device, pair in pairs.items():
            host_ns, elapsed = pair.host_ns, pair.event.elapsed_time
            own = _of_device(stamps, device, len(pairs))
            times.update(zip(own, [host_ns + int(elapsed(stamp[0]) * 1e6) for stamp in own.values()]))
        # a moment between the two readings of the host's clock, each as likely
        self.clock_error_ns = max((int(pair.width_ns / 12 ** 0.5) for pair in pairs.values()), default=0)
        return times

    def _pair_before(self, device: Device, host_ns: int) -> Pair:
        """The newest pair that was taken before."""
        pairs = self.pairs.get(device)
        if not pairs:  # a device that no module was known to use when the step began
            pairs = self.pairs[device] = deque([self._pair(device)], maxlen=PAIRS_KEPT)
        return next((pair for pair in reversed(pairs) if pair.host_ns <= host_ns), pairs[0])

    def _note_waiting(self, records: List[int], times: List[int], stamps: Dict[int, Stamp]) -> None:
        """Adds up the time of the modules at whose end the device had nothing to do."""
        begins, ends, numbers = (column[2 * FIELDS + at::FIELDS] for column, at in ((times, 0), (times, 1), (records, 1)))
        self.timed_ns += sum(ends) - sum(begins)
        self.waited_ns += sum([end - begin for begin, end, number in zip(begins, ends, numbers)
                               if end - stamps[number][2] < BEHIND_NS])

    def _recycle(self, first: int) -> None:
        """The events before a step, which belong to none."""
        events = self.events
        self._pool({number: events.pop(number) for number in range(self._read + 1, first) if number in events})
        self._read = max(self._read, first - 1)

    def _pool(self, stamps: Dict[int, Stamp]) -> None:
        """Keeps events that have been read, for later stamps."""
        for device, pool in self.pool.items():
            pool += [stamp[0] for stamp in _of_device(stamps, device, len(self.pool)).values()]

    def finish(self) -> bool:
        """Waits for every stamp; False if they can't be read, because a graph is being captured."""
        if self.is_capturing():
            return False
        self.seal()
        self.wait(list(self.events))
        return True

    def describe(self, device: Device) -> Dict[str, Any]:
        """What the run's table of devices says about one, as far as torch knows it."""
        about = self.cuda.get_device_properties(device)
        info: Dict[str, Any] = {"name": str(about.name), "kind": "gpu",
                                "memory_bytes": int(getattr(about, "total_memory", 0))}
        if getattr(about, "uuid", None):
            info["uuid"] = str(about.uuid)
        if hasattr(about, "pci_bus_id"):
            info["pci"] = f"{about.pci_domain_id:04x}:{about.pci_bus_id:02x}:{about.pci_device_id:02x}.0"
        return info

    # ---- what the times contain ----

    def share_of_waiting(self) -> Optional[float]:
        """Share of the modules' time in modules whose last kernel ended before the host had recorded the event after it:
        their time contains waiting for launches, and is not that of their kernels."""
        return self.waited_ns / self.timed_ns if self.timed_ns > 0 else None


def _default_device(torch: Any, model: Module) -> Device:
    """An accelerator that holds or computes a part of the model, or else the device of its weights."""
    first = None
    for module in model.modules():
        for device in _devices_of(torch, module):
            first = first or device
            if device.type not in ("cpu", "meta"):
                return device
    return first or torch.device("cpu")


def clock_for(torch: Any, model: Module) -> Tuple[HostClock, str]:
    """The clock of the device that computes the model, and the device's name."""
    device = _default_device(torch, model)
    if device.type == "cuda":
        return CudaClock(torch, device), "cuda"
    if device.type in ("cpu", "meta"):
        return HostClock(), device.type
    synchronize = getattr(getattr(torch, device.type, None), "synchronize", None)
    if synchronize is not None:
        return SynchronisedClock(synchronize, device.type), device.type
    clock = HostClock()
    clock.untimed = f"torch has no synchronize() for {device.type}, so when its modules' work ends is not known"
    return clock, device.type


# ---- waiting for all of a program's work -----------------------------------------------------------------


def _used_cuda_devices(torch: Any) -> List[int]:
    """Devices on which the program has computed: waiting for another one would make a context on it, with its memory."""
    has_context = getattr(getattr(torch, "_C", None), "_cuda_hasPrimaryContext", None)
    count = range(torch.cuda.device_count())
    if has_context is not None:
        return [i for i in count if has_context(i)]
    return [i for i in count if i == torch.cuda.current_device() or torch.cuda.memory_reserved(i)]


def _wait_for_all(torch: Any) -> None:
    cuda, xpu = torch.cuda, getattr(torch, "xpu", None)
    if cuda.is_available() and cuda.is_initialized() and not cuda.is_current_stream_capturing():
        for index in _used_cuda_devices(torch):
            cuda.synchronize(index)
    if xpu is not None and xpu.is_available() and xpu.is_initialized():
        for index in range(xpu.device_count()):
            xpu.synchronize(index)
    mps = getattr(torch.backends, "mps", None)
    if mps is not None and mps.is_available():
        torch.mps.synchronize()


def synchronise_devices(torch: Any = None) -> None:
    """Waits for all streams of all devices on which torch has computed; not while a CUDA graph is being captured, which
    waiting would invalidate. An error of the program's own work is left for its own next call to raise."""
    torch = torch or sys.modules.get("torch")
    if hasattr(torch, "cuda"):  # not None, nor half imported
        with contextlib.suppress(Exception):
            _wait_for_all(torch)
