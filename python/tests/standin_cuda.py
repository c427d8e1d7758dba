"""A stand-in for torch with CUDA devices: streams, events, capture and waiting, on a simulated clock.

Host and device share one clock, which advances only when the host works or waits: a launch, an event and a hook cost
what `Machine` says. A stream computes what was launched on it in order, from the launch at the earliest. As on a card,
reading an event that has not been passed is an error, and so is anything asked of a device while a stream is being
captured, which also invalidates the capture.
"""
import contextlib
import types

US, MS = 1_000, 1_000_000


class CudaError(RuntimeError):
    pass


class Device:
    def __init__(self, name):
        self.type, _, index = str(name).partition(":")
        self.index = int(index) if index else None

    def __eq__(self, other):
        return (self.type, self.index) == (other.type, other.index)

    def __hash__(self):
        return hash((self.type, self.index))

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"


class Stream:
    def __init__(self, machine, index):
        self.machine, self.index = machine, index
        machine.streams.append(self)
        self.cuda_stream, self.ready = len(machine.streams), 0

    def query(self):
        self.machine.ask("cudaStreamQuery")
        return self.ready <= self.machine.now

    def synchronize(self):
        self.machine.ask("cudaStreamSynchronize")
        self.machine.wait_until(self.ready)


class Event:
    def __init__(self, machine, enable_timing=False):
        self.machine, self.timing, self.at, self.index = machine, enable_timing, None, None

    def record(self, stream=None):
        machine = self.machine
        stream = stream or machine.current_stream()
        if machine.captured is not None:
            machine.ask("cudaEventRecord")
        machine.work(machine.event_ns)
        machine.events += 1
        # a later record of the same event replaces an earlier one
        self.at, self.index = max(machine.now, stream.ready), stream.index

    def query(self):
        self.machine.ask("cudaEventQuery")
        return self.at <= self.machine.now

    def synchronize(self):
        self.machine.ask("cudaEventSynchronize")
        self.machine.wait_until(self.at)

    def elapsed_time(self, end):
        for event in (self, end):
            if not event.timing or event.at > self.machine.now:
                raise RuntimeError("Both events must be completed before calculating elapsed time.")
        if self.index != end.index:
            raise RuntimeError("events of two devices")
        return (end.at - self.at) / MS


class Machine:
    """A host and its devices. `events`: how many were recorded; `waited`: ns that the host spent waiting for devices;
    `contexts`: devices that are in use."""

    def __init__(self, devices=1, event_ns=11 * US, launch_ns=6 * US, hook_ns=4 * US, now=10**12):
        self.now, self.event_ns, self.launch_ns, self.hook_ns = now, event_ns, launch_ns, hook_ns
        self.streams, self.events, self.waited = [], 0, 0
        self.captured, self.invalidated = None, False
        self.defaults = [Stream(self, i) for i in range(devices)]
        self.current = list(self.defaults)  # stream of each device
        self.device, self.contexts = 0, {0}

    def read(self):
        return self.now

    def work(self, ns):
        self.now += ns

    def hook(self):
        self.work(self.hook_ns)

    def wait_until(self, at):
        if at > self.now:
            self.waited += at - self.now
            self.now = at

    def ask(self, what):
        if self.captured is not None:
            self.invalidated = True
            raise CudaError(f"{what}: cudaErrorStreamCaptureInvalidated")

    def launch(self, ns, index=0):
        """A kernel of so many ns on the current stream of a device."""
        self.work(self.launch_ns)
        self.contexts.add(index)
        stream = self.current[index]
        if stream is not self.captured:
            stream.ready = max(self.now, stream.ready) + ns

    # ---- torch.cuda ----

    def index_of(self, device):
        if device is None:
            return self.device
        if isinstance(device, int):
            return device
        if device.type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {device}")
        return device.index if device.index is not None else self.device

    def current_stream(self, device=None):
        return self.current[self.index_of(device)]

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.current[stream.index] = self.current[stream.index], stream
        try:
            yield
        finally:
            self.current[stream.index] = before

    @contextlib.contextmanager
    def graph(self):
        """Captures what is launched."""
        with self.stream(Stream(self, self.device)):
            self.captured = self.current[self.device]
            try:
                yield
            finally:
                self.captured = None
        if self.invalidated:
            raise CudaError("cudaErrorStreamCaptureInvalidated")

    def synchronize(self, device=None):
        index = self.index_of(device)
        self.ask("cudaDeviceSynchronize")
        self.contexts.add(index)
        self.wait_until(max(s.ready for s in self.streams if s.index == index))

    def properties(self, device):
        index = self.index_of(device)
        return types.SimpleNamespace(name="Stand-in", total_memory=8 << 30, uuid=f"{index:08x}-0000-0000-0000-000000000000",
                                     pci_domain_id=0, pci_bus_id=0x65 + index, pci_device_id=0)

    def torch(self, **more):
        cuda = types.SimpleNamespace(
            is_available=lambda: True, is_initialized=lambda: True, device_count=lambda: len(self.defaults),
            current_device=lambda: self.device, current_stream=self.current_stream, stream=self.stream,
            synchronize=self.synchronize, memory_reserved=lambda i: int(i in self.contexts),
            is_current_stream_capturing=lambda: self.current_stream() is self.captured,
            Stream=lambda device=None: Stream(self, self.index_of(device)),
            Event=lambda enable_timing=False: Event(self, enable_timing),
            get_device_properties=self.properties)
        from made_model import Module
        handles = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda index: self.current[index].cuda_stream)
        return types.SimpleNamespace(
            cuda=cuda, _C=handles, device=Device, nn=types.SimpleNamespace(Identity=type("Identity", (Module,), {})),
            backends=types.SimpleNamespace(mps=types.SimpleNamespace(is_available=lambda: False)), **more)


class Ids:
    """A tensor of ids on a device, which are there when its stream has done what was launched before."""

    def __init__(self, machine, rows, index=0, version=0, counts=True):
        self.machine, self.values, self.device, self.version = machine, rows, Device(f"cuda:{index}"), [version]
        self.shape, self.counts = (len(rows), len(rows[0])), counts

    def is_floating_point(self):
        return False

    @property
    def _version(self):
        if not self.counts:
            raise RuntimeError("Inference tensors do not track version counter.")
        return self.version[0]

    def __getitem__(self, key):
        view = Ids(self.machine, [row[key[1]] for row in self.values], self.device.index, counts=self.counts)
        view.version = self.version
        return view

    def clone(self):
        self.machine.launch(2 * US, self.device.index)
        return Ids(self.machine, [list(row) for row in self.values], self.device.index, counts=self.counts)

    def overwrite(self):
        self.version[0] += 1

    def tolist(self):
        self.machine.current_stream(self.device).synchronize()
        return self.values


def place(machine, module, ns=100 * US, device="cuda:0", kernels=1):
    """Puts a module's weights on a device, and lets its forward launch kernels that take so long together."""
    weights, index = Device(device), 0 if device in ("cpu", "meta") else Device(device).index
    module._parameters = {name: types.SimpleNamespace(device=weights) for name in module._parameters}
    inner = module.forward

    def forward(*args, **kwargs):
        for _ in range(kernels):
            machine.launch(ns // kernels, index)
        return inner(*args, **kwargs)
    module.forward = forward


class StandInRun:
    """Collects what is recorded instead of passing it to the library."""

    def __init__(self):
        self.names, self.spans, self.texts, self._handle = [], [], [], object()
        self.open, self.devices, self.clock_errors = [], [], []
        self.on = {}  # number of the device of a span
        self._native = types.SimpleNamespace(pj_span_begin=lambda *_: None, pj_span_end=lambda *_: None)

    def name(self, text):
        if text not in self.names:
            self.names.append(text)
        return self.names.index(text)

    def lane(self):
        return None

    def add_spans(self, records, details=b"", texts=(), devices=()):
        first = len(self.spans)
        for i in range(0, len(records), 4):
            begin, end, word, _ = records[i:i + 4]
            if word >> 48:
                self.on[len(self.spans)] = devices[(word >> 48) - 1][0]
            self.spans.append((word >> 32 & 0xFFFF, word & 0xFFFFFFFF, begin, end))
        self.texts += [(self.spans[first + t[0]][1], *t[1:]) for t in texts]
        self.clock_errors += [error for _, error in devices]

    def begin_at(self, kind, id, ns):
        self.open.append(len(self.spans))
        self.spans.append((kind, id, ns, None))

    def end_at(self, ns):
        at = self.open.pop()
        kind, id, begin, _ = self.spans[at]
        self.spans[at] = (kind, id, begin, ns)

    def declare_device(self, **about):
        self.devices.append(about)
        return len(self.devices)

    def add_statistics_time(self, ns):
        pass

    def set_prompts(self, tokens):
        self.prompts = tokens

    def describe(self, **facts):
        self.facts = facts

    def set_tokens(self, given, made):
        self.tokens = given, made
