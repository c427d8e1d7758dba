"""Models on CUDA devices, on a stand-in for torch (standin_cuda.py): no card and no torch are needed."""
import sys
import types
import unittest
import unittest.mock

import perjoule
from made_model import Model, Module
from perjoule import _native as n
from perjoule.devices import BEHIND_NS, SynchronisedClock, clock_for, synchronise_devices
from perjoule.names import plan_of
from perjoule.recorder import BARE, LAYERS, PARTS
from perjoule.sparing import IN_A_PASS, RAREST, RAREST_LAYERS, PartSteps, empty_hooks_ns, intervals
from perjoule.watch import WHY_CAPTURED, Watch
from perjoule.window import measure
from standin_cuda import MS, US, Device, Ids, Machine, StandInRun, Stream, place
from support import recorded_warnings


class Cache:
    def __init__(self):
        self.length = 0

    def get_seq_length(self):
        return self.length


class Decoder(Model):
    """Model with a cache."""

    def forward(self, input_ids, cache):
        super().forward(1)
        cache.length += input_ids.shape[1]
        return {"cache": cache}


class Blocks(Decoder):
    """As many blocks and parts as a small Llama has."""

    def __init__(self, layers):
        from made_model import Block
        super().__init__(*(Block() for _ in range(layers)))


class CudaCase(unittest.TestCase):
    def setUp(self):
        self.caught = recorded_warnings(self)

    def machine(self, **options):
        machine = Machine(**options)
        self.torch = machine.torch()
        for name in ("aside", "devices", "recorder", "sparing", "statistics", "watch"):
            patch = unittest.mock.patch(f"perjoule.{name}.clock_ns", machine.read)
            patch.start()
            self.addCleanup(patch.stop)
        patch = unittest.mock.patch.object(Module, "on_hook", staticmethod(machine.hook))
        patch.start()
        self.addCleanup(patch.stop)
        return machine

    def model(self, machine, model=None, ns=100 * US):
        """A model whose modules with weights compute for `ns` each on the first device."""
        model = model or Decoder()
        for module in model.modules():
            if module._parameters:
                place(machine, module, ns)
        return model

    def watch(self, model, depth="module"):
        self.run_ = StandInRun()
        watch = Watch(self.torch, self.run_, model, plan_of(model), statistics_every=0, depth=depth)
        watch.attach()
        self.addCleanup(watch.detach)
        return watch

    def loop(self, machine, model, steps, prompt=5, cache=None, ids=None):
        """A loop that reads nothing back: the host may be ahead."""
        cache = cache or Cache()
        ids = ids or Ids(machine, [list(range(prompt))])
        for i in range(steps):
            model(ids, cache=cache)
            ids = Ids(machine, [[100 + i]])
        return cache

    def spans(self, kind, name=None):
        """Milliseconds of the spans of a kind."""
        wanted = name if name is None or isinstance(name, int) else self.run_.names.index(name)
        return [(b - a) / MS for k, id, a, b in self.run_.spans if k == kind and wanted in (None, id)]

    def check_fine(self, said, outputs):
        self.assertEqual((said["level"], said.get("level_reason")), ("fine", None))
        self.assertEqual(self.run_.tokens[1], outputs)


class Streams(CudaCase):
    def test_the_end_waits_for_side_streams(self):
        """The faults of a card: the end waited for the current stream only, and its events could not be read."""
        machine = self.machine()
        model = self.model(machine)
        side, block = Stream(machine, 0), model.model.layers._modules["1"].mlp
        inner = block.forward

        def on_side(x):
            with machine.stream(side):
                machine.launch(30 * MS)
                return inner(x)
        block.forward = on_side
        watch = self.watch(model)
        self.loop(machine, model, 2)
        said = watch.finish()
        self.check_fine(said, 2)
        self.assertGreaterEqual(machine.now, side.ready)
        self.assertEqual(len(self.spans(n.TOKEN)), 2)
        self.assertEqual(len(self.spans(n.COMPONENT, "down_proj")), 4)

    def test_measure_waits_for_every_stream_of_the_devices_in_use(self):
        machine = self.machine(devices=3)
        ends = []
        window = types.SimpleNamespace(end=lambda: ends.append(machine.now))
        with unittest.mock.patch.dict(sys.modules, torch=self.torch), \
                unittest.mock.patch("perjoule.window._shared.begin", lambda: window):
            for synchronise in (True, False):
                with measure(synchronise=synchronise):
                    with machine.stream(Stream(machine, 0)):
                        machine.launch(40 * MS)
                    machine.launch(70 * MS, 1)
                ready = max(s.ready for s in machine.streams)
                self.assertEqual(ends[-1] >= ready, synchronise)

            @measure
            def launches():
                machine.launch(9 * MS)
            launches()
            self.assertGreaterEqual(ends[-1], machine.defaults[0].ready)
        self.assertEqual(machine.contexts, {0, 1})  # waiting for the third would have made a context there

    def test_an_error_of_the_device_is_the_programs_to_raise(self):
        machine = self.machine()
        self.torch.cuda.synchronize = unittest.mock.Mock(side_effect=RuntimeError("device-side assert"))
        synchronise_devices(self.torch)
        self.torch.cuda.synchronize.assert_called_once()
        self.assertEqual(machine.waited, 0)


class Devices(CudaCase):
    def test_modules_elsewhere(self):
        for device in ("cpu", "meta"):
            with self.subTest(device):
                machine = self.machine()
                model = self.model(machine)
                place(machine, model.lm_head, device=device)
                place(machine, model.model.embed_tokens, device=device)  # the first: the model is not on the CPU for that
                watch = self.watch(model)
                self.loop(machine, model, 3)
                said = watch.finish()
                self.check_fine(said, 3)
                self.assertEqual(watch.device, "cuda")
                self.assertEqual(len(self.spans(n.COMPONENT, "lm_head")), 3)

    def test_weights_that_accelerate_moves(self):
        machine = self.machine()
        model = self.model(machine)
        for module in model.modules():
            if module._parameters:
                place(machine, module, device="meta")
                module._hf_hook = types.SimpleNamespace(execution_device="cuda:0")
        watch = self.watch(model)
        self.assertEqual(watch.device, "cuda")
        self.loop(machine, model, 2)
        self.check_fine(watch.finish(), 2)

    def test_a_model_over_two(self):
        machine = self.machine(devices=2)
        model = self.model(machine)
        for module in model.model.layers._modules["1"].modules():
            if module._parameters:
                place(machine, module, 400 * US, "cuda:1")
        watch = self.watch(model)
        self.loop(machine, model, 4)
        self.check_fine(watch.finish(), 4)
        self.assertEqual(len(self.spans(n.LAYER, 0)), 4)
        self.assertEqual(len(self.spans(n.LAYER, 1)), 4)
        self.assertEqual(watch.recorder.clock.error, None)
        second = self.spans(n.COMPONENT, "down_proj")[1]
        self.assertAlmostEqual(second, 0.4, delta=0.01)

    def test_modules_are_spans_of_the_device_that_computes_them(self):
        machine = self.machine(devices=2)
        model = self.model(machine)
        for module in model.model.layers._modules["1"].modules():
            if module._parameters:
                place(machine, module, 400 * US, "cuda:1")
        watch = self.watch(model)
        self.loop(machine, model, 4)
        watch.finish()
        run = self.run_
        self.assertEqual([d["pci"] for d in run.devices], ["0000:65:00.0", "0000:66:00.0"])
        self.assertEqual({d["name"] for d in run.devices}, {"Stand-in"})
        kinds = {}
        for i, (kind, id, begin, end) in enumerate(run.spans):
            kinds.setdefault(kind, set()).add(run.on.get(i))
        self.assertEqual([kinds[k] for k in (n.PHASE, n.TOKEN)], [{None}] * 2)
        layers = {id: {run.on.get(i) for i, (kind, other, _, _) in enumerate(run.spans) if (kind, other) == (n.LAYER, id)}
                  for id in (0, 1)}
        self.assertEqual(layers, {0: {1}, 1: {2}})
        self.assertNotIn(None, kinds[n.COMPONENT])
        self.assertTrue(all(0 < e < MS for e in run.clock_errors))
        self.assertEqual(run.open, [])

    def test_an_event_that_fails_stays_inside(self):
        machine = self.machine()
        model = self.model(machine)
        watch = self.watch(model)
        self.loop(machine, model, 1)
        before = machine.events
        with unittest.mock.patch("standin_cuda.Event.record", side_effect=RuntimeError("no more events")):
            self.loop(machine, model, 2)
        self.assertEqual(machine.events, before)
        said = watch.finish()
        self.assertEqual(said["level"], "coarse")
        self.assertIn("no more events", said["level_reason"])


class Capture(CudaCase):
    def test_a_graph_captured_in_the_block_is_left_alone(self):
        machine = self.machine()
        model = self.model(machine)
        watch = self.watch(model)
        cache = self.loop(machine, model, 2)
        with machine.graph():
            self.loop(machine, model, 1, prompt=1, cache=cache)
            synchronise_devices(self.torch)
        cache.length -= 1  # nothing was computed
        self.loop(machine, model, 2, prompt=1, cache=cache)
        said = watch.finish()
        self.assertFalse(machine.invalidated)
        self.assertEqual((said["level"], said["level_reason"]), ("coarse", WHY_CAPTURED))
        self.assertEqual(self.run_.tokens, (5, 4))

    def test_a_module_that_captures_itself(self):
        machine = self.machine()
        model = self.model(machine)
        block = model.model.layers._modules["1"]
        inner = block.forward

        def forward(x):
            with machine.graph():
                out = inner(x)
            machine.launch(MS)  # its replay
            return out
        block.forward = forward
        watch = self.watch(model)
        self.loop(machine, model, 3)
        said = watch.finish()
        self.assertFalse(machine.invalidated)
        self.check_fine(said, 3)
        self.assertEqual(len(self.spans(n.LAYER, 1)), 3)

    def test_a_block_within_a_capture(self):
        machine = self.machine()
        model = self.model(machine)
        with machine.graph():
            watch = self.watch(model)
            self.loop(machine, model, 1)
            said = watch.finish()
        self.assertFalse(machine.invalidated)
        self.assertEqual(said["level_reason"], WHY_CAPTURED)


class Costs(CudaCase):
    def cost(self, machine, model, attached, steps):
        """Host ns of a decode step, without the prefill and the first step."""
        cache = self.loop(machine, model, 1)
        begin = machine.now
        self.loop(machine, model, steps, prompt=1, cache=cache)
        return (machine.now - begin) / steps

    def test_no_more_than_empty_hooks_where_events_are_dear(self):
        """What events and hooks cost; the wrappers' own cost is python/bench/hooks.py's to measure."""
        # the stand-in's hooks cost the same everywhere, and the package's own code nothing
        for name, value in (("IN_A_PASS", 1.0), ("COLD", 1.0), ("PASS", 0.0), ("WRAPPED", 0.0), ("WRAPPED_LAYER", 0.0)):
            patch = unittest.mock.patch(f"perjoule.sparing.{name}", value)
            patch.start()
            self.addCleanup(patch.stop)
        for event_us, rarest in ((8, 6), (11, 24)):
            machine = self.machine(event_ns=event_us * US)
            # the device is slower than the host, so the host is never the one that waits
            plain = self.cost(machine, self.model(machine, Blocks(12), US), None, 64)
            hooked = self.model(machine, Blocks(12), US)
            plan = plan_of(hooked)
            modules = [block for _, block in plan.layers] + [part.module for part in plan.parts]
            for module in modules:
                module.register_forward_pre_hook(lambda module, args: None)
                module.register_forward_hook(lambda module, args, out: None)
            hooks = self.cost(machine, hooked, None, 64) - plain
            self.assertEqual(hooks, 8 * US * len(modules))
            model = self.model(machine, Blocks(12), US)
            watch = self.watch(model)
            recorded = self.cost(machine, model, watch, 64) - plain
            said = watch.finish()
            self.assertLessEqual(recorded, 1.4 * hooks)
            self.check_fine(said, 65)
            every, timed = said["parts_timed_every"], 64 - said["steps_without_parts"]
            self.assertLessEqual(every, rarest)
            self.assertGreaterEqual(timed, 64 // every)
            self.assertEqual(len(self.spans(n.COMPONENT, "q_proj")), (1 + timed) * 12)
            self.assertIn("parts of layers", str(self.caught[-1].message))
            with_layers = 65 - said.get("steps_without_layers", 0)
            self.assertGreaterEqual(with_layers, 64 // said.get("layers_timed_every", 1))
            self.assertEqual(len(self.spans(n.LAYER)), with_layers * 12)
            self.assertEqual(len(self.spans(n.SECTION, "lm_head")), with_layers)
            self.assertEqual(len(self.spans(n.TOKEN)), 65)
            watch.detach()

    def test_the_interval_grows_with_the_cost_of_a_stamp(self):
        steps = [intervals(12, 4, 600, stamp, 8000) for stamp in (0, 1000, 4000, 8000, 11000)]
        for column in zip(*steps):
            self.assertEqual(list(column), sorted(column))
        self.assertLessEqual(steps[0], (1, 2))
        self.assertLess(steps[-1][1], 24)
        self.assertTrue(all(k % m == 0 for m, k in steps))
        self.assertEqual(intervals(12, 4, 120, 10**6, 8000), (RAREST_LAYERS, RAREST))

    def test_parts_of_a_short_generation_are_seen(self):
        steps = PartSteps(every=100, layers_every=5)
        wanted = [steps.wants("decode") for _ in range(400)]
        self.assertEqual([i for i in range(400) if wanted[i] == PARTS], [0, 16, 32, 48, 64, 164, 264, 364])
        self.assertEqual([i for i in range(40) if wanted[i] == LAYERS], [*range(1, 16), 21, 26, 31, 37])
        self.assertEqual((steps.omitted, steps.bare), (392, wanted.count(BARE)))
        self.assertEqual([PartSteps(every=1).wants("decode") for _ in range(3)], [PARTS] * 3)

    def test_the_intervals_are_kept_where_a_step_is_slow_by_chance(self):
        """What each step, layer and part took is its own time: a step that is not timed inside passes none of it on."""
        machine = self.machine(event_ns=11 * US)
        model = self.model(machine, Blocks(12), 20 * US)
        watch = self.watch(model)
        watch.part_steps = PartSteps(every=8, layers_every=2)
        cache = self.loop(machine, model, 1)
        slow = list(model.model.layers)[3].mlp.down_proj
        forward, calls = slow.forward, [0]

        def hesitate(*args, **kwargs):
            calls[0] += 1
            if calls[0] in (20, 35):  # with layers but no parts, and without either
                machine.launch(50 * MS)
            return forward(*args, **kwargs)
        slow.__dict__["forward"] = hesitate
        self.loop(machine, model, 64, prompt=1, cache=cache)
        self.check_fine(watch.finish(), 65)
        tokens, layers = self.spans(n.TOKEN), self.spans(n.LAYER, 3)
        self.assertEqual([i for i, took in enumerate(tokens) if took > 50], [20, 35])
        self.assertEqual(sum(took > 50 for took in layers), 1)
        self.assertTrue(all(took < 1 for took in self.spans(n.COMPONENT)))

    def test_nothing_is_in_the_modules_while_a_step_is_not_timed(self):
        machine = self.machine()
        model = self.model(machine, Blocks(4), US)
        own = {id(module): module.__dict__.get("forward") for module in model.modules()}
        watch = self.watch(model)
        found = {}
        for level in (PARTS, LAYERS, BARE, LAYERS, PARTS):
            watch.recorder.forward_begins(level)
            found.setdefault(level, []).append(sum(m.__dict__.get("forward") is not own[id(m)] for m in model.modules()))
        parts, outer = len(watch.recorder.inner.patches), len(watch.recorder.outer.patches)
        self.assertEqual(found, {PARTS: [parts + outer] * 2, LAYERS: [outer] * 2, BARE: [0]})
        watch.recorder.forward_begins(BARE)
        second = self.watch(model)  # of a second profiler, which attaches meanwhile
        self.loop(machine, model, 3)
        watch.detach()
        second.detach()
        self.assertEqual({id(module): module.__dict__.get("forward") for module in model.modules()}, own)

    def instructions(self, level):
        """Python instructions of the package, and stamps, in a decode step that times so much."""
        machine = self.machine(event_ns=1)
        model = self.model(machine, Blocks(12), US)
        watch = self.watch(model)
        watch.part_steps.wants = lambda phase, whole: level
        cache = self.loop(machine, model, 1)
        executed, stamps = [0], machine.events

        def trace(frame, event, _):
            if "perjoule" not in frame.f_globals.get("__name__", ""):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            executed[0] += event == "opcode"
            return trace
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            self.loop(machine, model, 32, prompt=1, cache=cache)
        finally:
            sys.settrace(before)
        watch.detach()
        return executed[0] / 32, (machine.events - stamps) / 32

    def test_what_recording_costs_in_instructions(self):
        """Counted, because a time depends on what else the machine does: a step's own work, and that for each stamp."""
        sparse, few = self.instructions(LAYERS)
        full, many = self.instructions(PARTS)
        self.assertAlmostEqual(many - few, 2 * 12 * 10, delta=1)
        self.assertLess((full - sparse) / (many - few), 200)
        self.assertLess(sparse, 11_000)
        bare, fewest = self.instructions(BARE)
        self.assertAlmostEqual(fewest, 2, delta=0.5)
        self.assertLess(bare, 4000)

    def test_hooks_are_timed_where_they_run(self):
        self.machine(hook_ns=7 * US)
        self.assertEqual(empty_hooks_ns(self.torch), IN_A_PASS * 14 * US)

    def test_events_are_used_again(self):
        machine = self.machine()
        model = self.model(machine, ns=US)
        watch = self.watch(model)
        for _ in range(4):
            self.loop(machine, model, 100)
        clock = watch.recorder.clock
        made = len(clock.events) + sum(map(len, clock.pool.values()))
        watch.finish()
        self.assertLess(made, 300)


class Times(CudaCase):
    def planted(self, machine):
        model = self.model(machine)
        for name, ms in (("gate_proj", 1), ("up_proj", 3)):
            place(machine, model.model.layers._modules["0"].mlp._modules[name], ms * MS)
        return model

    def test_the_device_limits(self):
        machine = self.machine()
        model = self.planted(machine)
        watch = self.watch(model)
        self.loop(machine, model, 8)
        said = watch.finish()
        self.check_fine(said, 8)
        self.assertAlmostEqual(self.spans(n.COMPONENT, "gate_proj")[0], 1.1, delta=0.02)
        self.assertAlmostEqual(self.spans(n.COMPONENT, "up_proj")[0], 3.1, delta=0.02)
        self.assertEqual(said["module_times"], "CUDA events")
        self.assertLess(said["module_times_waiting_share"], 0.1)

    def test_launches_limit(self):
        """Kernels of 1 us that take 6 us to launch: a module's time is the host's, and is called so."""
        machine = self.machine()
        model = self.model(machine, ns=US)
        watch = self.watch(model)
        self.loop(machine, model, 8)
        said = watch.finish()
        self.assertGreater(said["module_times_waiting_share"], 0.9)
        self.assertIn("waiting for launches", said["module_times"])

    def test_device_times_are_those_of_the_hosts_clock(self):
        machine = self.machine()
        model = self.planted(machine)
        watch = self.watch(model)
        for _ in range(3):
            cache = self.loop(machine, model, 2)
            machine.synchronize()
            machine.work(4_000 * MS)  # longer than a clock pair is used
            begin = machine.now
            self.loop(machine, model, 1, prompt=1, cache=cache)
            watch.end_request(None)
            token = [s for s in self.run_.spans if s[0] == n.TOKEN][-1]
            self.assertAlmostEqual(token[2], begin, delta=BEHIND_NS + 100 * US)

    def test_kinds_of_devices(self):
        cpu, waits = Module(weights=True), []
        for kind, module in (("mps", types.SimpleNamespace(synchronize=lambda: waits.append(1))),
                             ("xpu", types.SimpleNamespace(synchronize=lambda: waits.append(1))), ("hpu", None)):
            cpu._parameters = {"weight": types.SimpleNamespace(device=Device(f"{kind}:0"))}
            torch = types.SimpleNamespace(device=Device, **({kind: module} if module else {}))
            clock, name = clock_for(torch, cpu)
            self.assertEqual(name, kind)
            if module:
                self.assertIsInstance(clock, SynchronisedClock)
                self.assertIn(f"{kind} synchronised", clock.how)
                clock.stamp_of(cpu)()
                self.assertTrue(waits.pop())
            else:
                self.assertIn("hpu", clock.untimed)

    def test_a_run_on_another_accelerator_says_how_it_was_timed(self):
        machine = self.machine()
        self.torch.xpu = types.SimpleNamespace(
            synchronize=lambda index=0: machine.wait_until(machine.defaults[0].ready), is_available=lambda: False)
        model = self.model(machine)
        for module in model.modules():
            module._parameters = {name: types.SimpleNamespace(device=Device("xpu:0")) for name in module._parameters}
        watch = self.watch(model)
        self.loop(machine, model, 2)
        said = watch.finish()
        self.check_fine(said, 2)
        self.assertEqual(said["module_times"], "host, with xpu synchronised before and after each module")
        self.torch.xpu = None
        watch = self.watch(model)
        self.loop(machine, model, 2)
        said = watch.finish()
        self.assertEqual((said["level"], self.spans(n.COMPONENT)), ("coarse", []))
        self.assertIn("xpu", said["level_reason"])


class Loops(CudaCase):
    def test_the_host_stays_ahead(self):
        machine = self.machine(event_ns=US)
        model = self.model(machine, ns=200 * US)
        watch = self.watch(model)
        cache = self.loop(machine, model, 1)
        waited = machine.waited
        self.loop(machine, model, 10, prompt=1, cache=cache)
        self.assertLess(machine.waited - waited, 100 * US)  # of a clock pair at most
        self.assertGreater(machine.defaults[0].ready - machine.now, 20 * MS)
        said = watch.finish()
        self.check_fine(said, 11)
        # the tokens that the passes read: all but the last, which no pass read
        self.assertEqual([t[2] for t in self.run_.texts], [0, *range(100, 109)])

    def test_the_host_is_not_ahead_by_more_than_some_steps(self):
        machine = self.machine(event_ns=US)
        model = self.model(machine, ns=2 * MS)
        watch = self.watch(model)
        self.loop(machine, model, 100)
        self.assertLess(len(watch.recorder.pending), 20)
        self.assertGreater(machine.defaults[0].ready, machine.now)
        self.check_fine(watch.finish(), 100)

    def test_phases_are_the_devices(self):
        """A prefill of 69 ms that the host launched in one: its phase must not end with the launches."""
        machine = self.machine()
        model = self.model(machine)
        place(machine, model.lm_head, 69 * MS)
        slow = model.lm_head.forward
        watch = self.watch(model)
        cache = self.loop(machine, model, 1)
        self.assertEqual(model.lm_head.forward.__wrapped__, slow)
        self.loop(machine, model, 4, prompt=1, cache=cache)
        watch.finish()
        phases = {name: self.spans(n.PHASE, n.PHASES.index(name)) for name in ("pre_inference", "prefill", "decode")}
        self.assertEqual([len(v) for v in phases.values()], [1, 1, 1])
        self.assertGreater(phases["prefill"][0], 69)
        self.assertGreater(phases["decode"][0], 4 * 69)
        self.assertAlmostEqual(phases["prefill"][0], phases["decode"][0] / 4, delta=1)

    def test_ids_that_the_program_overwrites_are_not_known(self):
        machine = self.machine()
        model = self.model(machine, ns=5 * MS)
        watch = self.watch(model)
        cache = self.loop(machine, model, 1)
        ids = Ids(machine, [[50]])
        for _ in range(3):
            model(ids, cache=cache)
            ids.overwrite()
        self.check_fine(watch.finish(), 4)
        self.assertEqual(self.run_.texts, [])

    def test_ids_of_inference_mode_are_copied(self):
        machine = self.machine()
        model = self.model(machine, ns=5 * MS)
        watch = self.watch(model)
        cache = self.loop(machine, model, 1)
        for i in (60, 61):
            ids = Ids(machine, [[i]], counts=False)
            model(ids, cache=cache)
            ids.values[0][0] = -1
        self.check_fine(watch.finish(), 3)
        self.assertEqual([t[2] for t in self.run_.texts], [60, 61])


class Unprofiled(unittest.TestCase):
    def test_nothing_is_asked_of_torch_that_is_not_loaded(self):
        with unittest.mock.patch.dict(sys.modules):
            sys.modules.pop("torch", None)
            synchronise_devices()
        synchronise_devices(types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: False), backends=None))
        self.assertTrue(perjoule.measure)


if __name__ == "__main__":
    unittest.main()
