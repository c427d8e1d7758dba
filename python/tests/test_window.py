"""measure() and Window: nested, in threads and tasks, and None where no sensor measures."""
import asyncio
import csv
import functools
import os
import pickle
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

import perjoule
from support import StoredCase, recorded_warnings


@perjoule.measure
def decorated():
    return 1


@perjoule.measure("name")
def decorated_with_a_name():
    return 2


class Measuring(StoredCase):
    def test_a_block(self):
        reported = []
        with perjoule.measure("sleep", report=reported.append) as m:
            self.assertIsNone(m.joules)
            time.sleep(0.03)
        self.assertGreater(m.joules, 0)
        self.assertGreaterEqual(m.seconds, 0.03)
        self.assertEqual(reported, [m])
        self.assertRegex(str(m), r"^sleep: .* s, .* J .*modelled")
        self.assertEqual(repr(m), f"<measured {m}>")
        self.assertLess(m.lo, m.joules)
        self.assertLess(m.joules, m.hi)
        picture = m._repr_html_()
        self.assertTrue(picture.startswith("<table><caption>sleep</caption>") and picture.endswith("</table>"))
        for name in m.rails:
            self.assertIn(f">{name}</th>", picture)
        self.assertEqual(sum(v for k, v in m.rails.items()), m.joules)
        half = (m.energy.hi_mj - m.energy.lo_mj) / 2000  # symmetric in logarithms
        self.assertTrue(0 < m.random_joules <= half)
        self.assertAlmostEqual((m.random_joules ** 2 + (m.result.gain_mj / 1000) ** 2) ** .5, half, delta=half / 100)
        self.assertFalse(os.path.exists(self.db))  # windows store nothing

    def test_windows_nest(self):
        with perjoule.measure() as outer:
            with perjoule.measure() as inner:
                time.sleep(0.02)
            time.sleep(0.02)
        self.assertGreater(outer.seconds, inner.seconds)
        self.assertGreater(outer.joules, inner.joules)

    def test_functions_and_what_they_return(self):
        seen = []

        @perjoule.measure(report=seen.append)
        def add(a, b=1):
            "Adds."
            return a + b

        class Thing:
            @perjoule.measure(report=seen.append)
            def method(self):
                return self

            @perjoule.measure
            def plain(self):
                return self
        thing = Thing()
        self.assertEqual((add(1, b=2), add.__doc__), (3, "Adds."))
        self.assertIs(thing.method(), thing)
        self.assertIs(thing.plain(), thing)
        self.assertEqual([m.name.rsplit(".", 1)[-1] for m in seen], ["add", "method"])

    def test_a_block_that_raises_is_measured_and_raises(self):
        measured = []
        with self.assertRaises(ZeroDivisionError), perjoule.measure(report=measured.append):
            1 / 0
        self.assertGreaterEqual(measured[0].seconds, 0)

    def test_tasks_that_take_turns(self):
        seen = {}

        @perjoule.measure(report=lambda m: seen.setdefault("decorated", m))
        async def decorated():
            await asyncio.sleep(0.02)
            return 5

        async def task(name, seconds):
            async with perjoule.measure() as m:
                await asyncio.sleep(seconds)
            seen[name] = m

        async def main():
            await asyncio.gather(task("a", 0.06), task("b", 0.02), decorated())
        asyncio.run(main())
        self.assertGreater(seen["a"].seconds, 0.055)
        self.assertGreaterEqual(seen["b"].seconds, 0.02)
        self.assertGreater(seen["decorated"].joules, 0)

    def test_one_object_in_tasks_that_overlap(self):
        shared = perjoule.measure("shared")

        async def block(seconds, asynchronous):
            if asynchronous:
                async with shared as m:
                    async with shared as inner:
                        await asyncio.sleep(seconds)
            else:
                with shared as m, shared as inner:
                    await asyncio.sleep(seconds)
            self.assertLessEqual(inner.seconds, m.seconds)
            return m.seconds

        async def both(asynchronous):
            return await asyncio.gather(block(0.4, asynchronous), block(0.01, asynchronous))

        for asynchronous in (False, True):
            long, short = asyncio.run(both(asynchronous))
            self.assertGreaterEqual(long, 0.4)
            self.assertLess(short, long)
        self.assertEqual(shared._open, {})

    def test_one_object_in_many_threads(self):
        shared, found = perjoule.measure(), []

        def work():
            with shared as m:
                time.sleep(0.02)
            found.append(m)
        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(len({id(m) for m in found}), 4)
        self.assertTrue(all(m.seconds >= 0.02 and m.joules > 0 for m in found))

    def test_generators_are_refused(self):
        with self.assertRaisesRegex(TypeError, "generator"):
            @perjoule.measure
            def numbers():
                yield 1

        class Numbers:
            def __call__(self):
                yield 1
        for generator in (Numbers(), functools.partial(Numbers()), functools.partial(Numbers.__call__, None)):
            with self.assertRaisesRegex(TypeError, "generator"):
                perjoule.measure("n")(generator)

    def test_the_last_measurement_of_a_decorated_function(self):
        @perjoule.measure
        def bare():
            time.sleep(0.01)

        @perjoule.measure("name")
        def named():
            time.sleep(0.01)

        @perjoule.measure
        async def coroutine():
            await asyncio.sleep(0.01)
        for function in (bare, named, coroutine):
            self.assertIsNone(function.last)
        bare(), named(), asyncio.run(coroutine())
        for function in (bare, named, coroutine):
            self.assertGreaterEqual(function.last.seconds, 0.01)

    def test_coroutines_of_objects_are_awaited(self):
        class Work:
            async def __call__(self):
                await asyncio.sleep(0.02)
                return 5
        seen = []
        for work in (Work(), functools.partial(Work())):
            self.assertEqual(asyncio.run(perjoule.measure("w", report=seen.append)(work)()), 5)
        self.assertTrue(all(m.seconds >= 0.02 for m in seen), seen)

    def test_what_is_no_function_is_refused(self):
        with self.assertRaisesRegex(TypeError, "below @property"):
            class Thing:
                @perjoule.measure
                @property
                def value(self):
                    return 1
        with self.assertRaisesRegex(TypeError, "decorates functions"):
            perjoule.measure("name")(3)

    def test_a_decorated_function_is_pickled_by_its_name(self):
        for function in (decorated, decorated_with_a_name):
            self.assertIs(pickle.loads(pickle.dumps(function)), function)
        self.assertEqual(pickle.loads(pickle.dumps(perjoule.measure("block")))._name, "block")

    def test_a_fork_measures_by_itself(self):
        with perjoule.measure():
            pass
        child = os.fork()
        if child == 0:
            with perjoule.measure() as m:
                time.sleep(0.02)
            os._exit(0 if m.joules and m.joules > 0 else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


class Windows(StoredCase):
    def test_names_as_zeus_has_them(self):
        from perjoule.window import ZeusMonitor
        monitor = ZeusMonitor()
        monitor.begin_window("outer")
        monitor.begin_window("inner")
        time.sleep(0.02)
        inner = monitor.end_window("inner")
        outer = monitor.end_window("outer", cancel=True)
        self.assertGreater(outer.time, inner.time)
        self.assertGreater(outer.total_energy, inner.total_energy)
        self.assertEqual((inner.gpu_energy, inner.energy_source), ({}, "modelled"))
        self.assertEqual(list(inner.cpu_energy), [0])

    def test_keys_are_checked(self):
        window = perjoule.Window()
        window.begin_window("a")
        with self.assertRaisesRegex(ValueError, "'a' is open"):
            window.begin_window("a")
        window.end_window("a")
        with self.assertRaisesRegex(ValueError, "no window 'a'"):
            window.end_window("a")

    def test_gpus_are_told_apart(self):
        window = perjoule.Window(gpu_indices=[1])
        rails = {"cpu": perjoule.Energy(500.0), "gpu0": perjoule.Energy(1000.0), "gpu1": perjoule.Energy(2000.0)}
        result = mock.Mock(rails=rails, duration_ms=10.0, energy=None, energy_source="measured")
        measured = window._measurement(result)
        self.assertEqual((measured.gpu_energy, measured.total_energy, measured.cpu_energy), ({1: 2.0}, 2.0, {0: 0.5}))

    def test_a_gpu_without_energy_leaves_the_total_unavailable(self):
        rails = {"cpu": perjoule.Energy(500.0), "gpu0": perjoule.Energy(1000.0), "gpu1": None}
        result = mock.Mock(rails=rails, duration_ms=10.0, energy=perjoule.Energy(1500.0), energy_source="measured")
        for wanted, gpus, total in ((None, {0: 1.0, 1: None}, None), ([0], {0: 1.0}, 1.0), ([0, 7], {0: 1.0, 7: None}, None)):
            measured = perjoule.Window(gpu_indices=wanted)._measurement(result)
            self.assertEqual((measured.gpu_energy, measured.total_energy), (gpus, total), wanted)
        for wrong in ("0", [-1], [0.5]):
            with self.assertRaisesRegex(ValueError, "gpu_indices"):
                perjoule.Window(gpu_indices=wrong)

    def test_processor_packages_are_told_apart(self):
        for names, wanted, cpu, dram in (
                (("cpu0", "cpu1", "dram0", "dram1"), None, {0: 1.0, 1: 2.0}, {0: 3.0, 1: 4.0}),
                (("cpu0", "cpu1", "dram0", "dram1"), [1], {1: 2.0}, {1: 4.0}),
                (("cpu", "cpufreq", "dram"), None, {0: 1.0}, {0: 3.0}), (("cpu", "gpu0", "dram"), [], None, None)):
            rails = {name: perjoule.Energy(1000.0 * (i + 1)) for i, name in enumerate(names)}
            result = mock.Mock(rails=rails, duration_ms=10.0, energy=None, energy_source="measured")
            measured = perjoule.Window(cpu_indices=wanted)._measurement(result)
            self.assertEqual((measured.cpu_energy, measured.dram_energy), (cpu, dram), names)

    def test_what_else_zeuss_monitor_takes(self):
        log = os.path.join(self.folder, "zeus.csv")
        monitor = perjoule.Window([0], [], True, log_file=log)
        for key, cancel in (("a", False), ("b, c", False), ("d", True)):
            monitor.begin_window(key)
            time.sleep(0.02)
            measured = monitor.end_window(key, cancel=cancel)
        self.assertIsNone(measured.cpu_energy)
        self.assertEqual((measured.gpu_energy, measured.total_energy), ({0: None}, None))  # asked for and not there
        with open(log, encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([(r["window_name"], r["gpu0_energy"]) for r in rows], [("a", ""), ("b, c", "")])
        self.assertGreater(float(rows[0]["elapsed_time"]), 0)
        with self.assertRaisesRegex(ValueError, "torch, jax, cupy, not for mxnet"):
            perjoule.Window(sync_execution_with="mxnet")
        perjoule.Window(sync_execution_with="mxnet", synchronise=False)

    def test_windows_are_restarted_and_discarded(self):
        monitor = perjoule.Window()
        monitor.begin_window("a")
        first = monitor._open["a"]
        monitor.begin_window("a", restart=True)
        self.assertIsNot(monitor._open["a"], first)
        with self.assertRaisesRegex(RuntimeError, "the window is over"):
            first.end()
        monitor.begin_window("b", restart=True)
        monitor.reset_windows()
        for key in "ab":
            with self.assertRaisesRegex(ValueError, f"no window '{key}'"):
                monitor.end_window(key)

    def test_other_frameworks_are_waited_for(self):
        jax, cupy = mock.MagicMock(), mock.MagicMock()
        jax.local_devices.return_value = ["cpu", "gpu"]
        cupy.cuda.runtime.getDeviceCount.return_value = 2
        for name in ("jax", "cupy"):
            perjoule.Window(sync_execution_with=name).begin_window("not imported: nothing to wait for")
        with mock.patch.dict(sys.modules, jax=jax, cupy=cupy):
            for name in ("jax", "cupy"):
                window = perjoule.Window(sync_execution_with=name)
                window.begin_window("w")
                window.end_window("w")
                window.begin_window("w", sync_execution=False)
        self.assertEqual([call.kwargs["device"] for call in jax.device_put.call_args_list], ["cpu", "gpu"] * 2)
        self.assertEqual(jax.block_until_ready.call_count, 2)
        self.assertEqual([call.args for call in cupy.cuda.Device.call_args_list], [(0,), (1,)] * 2)
        self.assertEqual(cupy.cuda.Device.return_value.synchronize.call_count, 4)

    def test_parts_of_apples_chips(self):
        rails = {"cpu": perjoule.Energy(500.0), "gpu": perjoule.Energy(2000.0), "ane": perjoule.Energy(3.0), "dram": None}
        result = mock.Mock(rails=rails, duration_ms=10.0, energy=None, energy_source="measured")
        soc = perjoule.Window()._measurement(result).soc_energy
        self.assertEqual((soc.cpu_total_mj, soc.gpu_mj, soc.ane_mj, soc.dram_mj), (500.0, 2000.0, 3.0, None))
        del rails["ane"]
        self.assertIsNone(perjoule.Window()._measurement(result).soc_energy)

    def test_a_missing_sensor_is_no_error_where_warnings_are(self):
        """The block's energy is None, and its program goes on."""
        code = "import perjoule\nwith perjoule.measure() as m: pass\nprint(m.joules, m.seconds > 0)"
        environment = {**os.environ, "PERJOULE_POWER": "none"}
        done = subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "None True\n"), done.stderr)
        self.assertIn("EnergyUnavailable: no power sensor works here", done.stderr)

    def test_without_a_sensor(self):
        caught = recorded_warnings(self)
        os.environ.pop("PERJOULE_POWER")
        nothing = {"PERJOULE_SYSFS": self.folder, "PERJOULE_NVML": "/nowhere", "PERJOULE_POWERMETRICS": "/nowhere"}
        from perjoule import window as module
        with mock.patch.dict(os.environ, nothing), mock.patch.object(module, "_shared", module._Shared()):
            window = perjoule.Window()
            for _ in range(2):
                window.begin_window("x")
                measured = window.end_window("x")
            with perjoule.measure() as m:
                pass
            module._shared.close()
        self.assertEqual((measured.total_energy, measured.cpu_energy, m.joules), (None, None, None))
        self.assertIn("energy unavailable", str(m))
        self.assertEqual(len([w for w in caught if w.category is perjoule.EnergyUnavailable]), 1)


if __name__ == "__main__":
    unittest.main()
