"""The plugin against vLLM's own statistics classes and plugin loading. No engine is started.

Where vLLM can't be imported, the same tests run against a stand-in with the classes of its documented interface.
Nothing that needs a device supported by vLLM (a server, an offline LLM that generates) is run.
"""
import dataclasses
import importlib.metadata
import inspect
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import unittest
import zipfile

import perjoule
from support import StoredCase

BACKEND = pathlib.Path(__file__).resolve().parents[1] / "backend.py"


def stand_in():
    """Fake modules with the parts of vLLM that the plugin uses."""
    class StatLoggerBase:
        def __init__(self, vllm_config, engine_index=0):
            pass

        def record(self, scheduler_stats, iteration_stats, mm_cache_stats=None, engine_idx=0):
            pass

        def log_engine_initialized(self):
            pass

        def log(self):
            pass

    class OutputProcessor:
        def __init__(self, tokenizer=None, log_stats=False):
            self.request_states = {}

        def add_request(self, request, prompt, parent_req=None, request_index=0, queue=None):
            return request

        def has_unfinished_requests(self):
            return len(self.request_states) > 0

        def abort_requests(self, request_ids, internal):
            return [i for i in request_ids if self.request_states.pop(i, None)]

    class LLMEngine:
        def __init__(self, vllm_config, executor_class, log_stats, aggregate_engine_logging=False, usage_context=None,
                     stat_loggers=None):
            self.given = (log_stats, stat_loggers)

    modules = {"vllm.v1.metrics.loggers": dict(StatLoggerBase=StatLoggerBase),
               "vllm.v1.engine.output_processor": dict(OutputProcessor=OutputProcessor),
               "vllm.v1.engine.llm_engine": dict(LLMEngine=LLMEngine)}
    for name in ("vllm", "vllm.v1", "vllm.v1.metrics", "vllm.v1.engine"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
    for name, members in modules.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(members)


try:
    import vllm.v1.engine.llm_engine
    from vllm.v1.engine import FinishReason
    from vllm.v1.metrics.stats import FinishedRequestStats, IterationStats, SchedulerStats
    REAL = importlib.metadata.version("vllm")
except ImportError as e:
    REAL = None
    print(f"vLLM can't be imported ({e}): its plugin is tested against a stand-in for its interface")
    stand_in()
    FinishedRequestStats = IterationStats = SchedulerStats = None

from perjoule import vllm as plugin  # noqa: E402


def iteration(computed, new, *finished):
    if REAL:
        stats = IterationStats()
        stats.prompt_token_stats.computed = computed
        stats.num_generation_tokens, stats.finished_requests = new, list(finished)
        return stats
    return types.SimpleNamespace(num_prompt_tokens=computed, num_generation_tokens=new, finished_requests=list(finished))


def finished(name, prompt, output, prefill, decode):
    fields = dict(request_id=name, finish_reason=FinishReason.STOP if REAL else "stop", num_prompt_tokens=prompt, num_generation_tokens=output,
                  queued_time=0.0, prefill_time=prefill, decode_time=decode)
    return FinishedRequestStats(**fields) if REAL else types.SimpleNamespace(**fields)


class Request:
    """A request of two steps of 30 ms; its reported times are those that really passed."""

    def __init__(self, recorder):
        recorder.arrived()
        self.begin = time.monotonic()

    def prefilled(self):
        time.sleep(0.03)
        self.first = time.monotonic()

    def finished(self, name, prompt, output):
        time.sleep(0.03)
        return finished(name, prompt, output, self.first - self.begin, time.monotonic() - self.first)


def scheduler(running):
    if REAL:
        return SchedulerStats(num_running_reqs=running)
    return types.SimpleNamespace(num_running_reqs=running, num_waiting_reqs=0)


class Plugin(StoredCase):
    def logger(self):
        config = types.SimpleNamespace(model_config=types.SimpleNamespace(model="org/small"))
        logger = plugin.EnergyLogger(config, 0)
        self.addCleanup(plugin.close)
        return logger

    def test_the_interface_is_kept(self):
        from vllm.v1.metrics.loggers import StatLoggerBase
        self.assertTrue(issubclass(plugin.EnergyLogger, StatLoggerBase))
        logger = self.logger()
        logger.log_engine_initialized()
        logger.log()
        logger.record(None, None)
        logger.record(scheduler(0), iteration(0, 0), mm_cache_stats=None, engine_idx=0)

    def test_signatures_are_those_that_the_plugin_counts_on(self):
        """Checks the interface the plugin relies on: of vLLM if it can be imported, else of the stand-in."""
        from vllm.v1.engine.llm_engine import LLMEngine
        from vllm.v1.engine.output_processor import OutputProcessor
        from vllm.v1.metrics.loggers import StatLoggerBase

        def names(function):
            return list(inspect.signature(inspect.unwrap(function)).parameters)[1:]
        for method in ("__init__", "record", "log_engine_initialized"):
            self.assertEqual(names(getattr(plugin.EnergyLogger, method)), names(getattr(StatLoggerBase, method)), method)
        engine = names(LLMEngine.__init__)
        self.assertEqual((engine[2], engine[5]), ("log_stats", "stat_loggers"))
        for method in ("add_request", "abort_requests", "has_unfinished_requests"):
            self.assertTrue(callable(getattr(OutputProcessor, method)), method)

    @unittest.skipUnless(REAL, "vLLM can't be imported")
    def test_the_fields_that_are_read_exist(self):
        def fields(cls):
            return {f.name for f in dataclasses.fields(cls)}
        self.assertLessEqual({"request_id", "finish_reason", "num_prompt_tokens", "num_cached_tokens", "num_generation_tokens",
                              "queued_time", "prefill_time", "decode_time"}, fields(FinishedRequestStats))
        self.assertLessEqual({"num_running_reqs", "num_waiting_reqs"}, fields(SchedulerStats))
        self.assertTrue({"prompt_token_stats", "num_generation_tokens", "finished_requests"} <= set(vars(IterationStats())))

    @unittest.skipUnless(REAL, "vLLM can't be imported")
    def test_vllms_own_dispatcher_of_statistics_reaches_the_run(self):
        from vllm.v1.metrics.loggers import PerEngineStatLoggerAdapter
        config = types.SimpleNamespace(model_config=types.SimpleNamespace(model="org/small"))
        self.addCleanup(plugin.close)
        dispatcher = PerEngineStatLoggerAdapter(config, [0], plugin.EnergyLogger)
        dispatcher.log_engine_initialized()
        recorder = dispatcher.per_engine_stat_loggers[0].recorder
        request = Request(recorder)
        request.prefilled()
        dispatcher.record(scheduler(1), iteration(7, 1), None, 0)
        dispatcher.record(scheduler(0), iteration(0, 1, request.finished("a", 7, 2)), None, 0)
        plugin.close()
        run = perjoule.open(self.db).run()
        self.assertEqual((run.input_tokens, run.output_tokens), (7, 2))
        self.assertEqual([(r["id"], r["reason"]) for r in run.requests()], [("a", "stop")])

    def test_steps_and_finished_requests_become_a_run(self):
        plugin.register()
        logger = self.logger()
        request = Request(logger.recorder)
        request.prefilled()
        logger.record(scheduler(1), iteration(12, 1))
        logger.record(scheduler(0), iteration(0, 1, request.finished("a", 12, 2)))
        plugin.close()
        run = perjoule.open(self.db).run()
        self.assertEqual((run.model_name, run.engine, run.input_tokens, run.output_tokens), ("small", "vllm", 12, 2))
        only, = run.requests()
        self.assertEqual(only["id"], "a")
        self.assertGreater(only["energy_mj"], 0)

    def test_an_abort_of_the_last_request_ends_the_run(self):
        from vllm.v1.engine.output_processor import OutputProcessor
        plugin.register()
        logger = self.logger()
        processor = OutputProcessor(None, log_stats=True)
        logger.recorder.arrived()
        time.sleep(0.03)
        logger.record(scheduler(2), iteration(12, 1))
        processor.request_states["other"] = object()  # while another is in flight the run goes on
        processor.abort_requests([], internal=True)
        self.assertIsNotNone(logger.recorder._run)
        processor.request_states.clear()
        self.assertEqual(processor.abort_requests([], internal=True), [])
        logger.record(scheduler(1), iteration(0, 1))  # a step that was already in progress starts no run
        self.assertIsNone(logger.recorder._run)
        logger.recorder.arrived()
        time.sleep(0.03)
        logger.record(scheduler(0), iteration(5, 1, finished("b", 5, 1, 0.03, 0)))
        plugin.close()
        runs = perjoule.open(self.db).runs()
        self.assertEqual([(r.input_tokens, r.output_tokens) for r in sorted(runs, key=lambda r: r.id)], [(12, 1), (5, 1)])

    def test_a_failure_to_record_does_not_stop_the_server(self):
        os.environ["PERJOULE_POWER"] = "nonsense"
        with self.assertLogs("vllm.perjoule", "WARNING"):
            logger = self.logger()
        logger.record(scheduler(0), iteration(1, 1))
        os.environ["PERJOULE_POWER"] = "sim"
        logger = self.logger()
        with self.assertLogs("vllm.perjoule", "WARNING"):
            logger.record(scheduler(0), types.SimpleNamespace(
                finished_requests=["of another version"], num_generation_tokens=1, num_prompt_tokens=1))
        logger.record(scheduler(0), iteration(1, 1))

    def test_arrivals_are_seen_and_an_offline_engine_gets_the_logger(self):
        from vllm.v1.engine import llm_engine, output_processor
        plugin.register()
        plugin.register()  # vLLM may load plugins several times
        self.assertTrue(output_processor.OutputProcessor.add_request._perjoule)
        self.assertFalse(hasattr(output_processor.OutputProcessor.add_request.__wrapped__, "_perjoule"))
        seen = {}

        def own(self, vllm_config, executor_class, log_stats, aggregate_engine_logging=False, usage_context=None,
                stat_loggers=None):
            seen.update(log_stats=log_stats, stat_loggers=stat_loggers)
        init = plugin._with_logger(own)
        init(None, 1, 2, log_stats=False, stat_loggers=None)
        self.assertEqual(seen, {"log_stats": True, "stat_loggers": [plugin.EnergyLogger]})
        init(None, 1, 2, False, False, None, [int])
        self.assertEqual(seen, {"log_stats": True, "stat_loggers": [int, plugin.EnergyLogger]})
        self.assertTrue(llm_engine.LLMEngine.__init__._perjoule)

    def test_the_package_names_both_groups(self):
        with tempfile.TemporaryDirectory() as folder:
            made = subprocess.run([sys.executable, BACKEND, "vllm", folder], check=True, capture_output=True, text=True)
            path = made.stdout.strip()
            self.assertRegex(path, r"perjoule_vllm-[\d.]+-py3-none-any\.whl$")
            with zipfile.ZipFile(path) as wheel:
                wheel.extractall(folder)
            found, = importlib.metadata.distributions(name="perjoule-vllm", path=[folder])
            groups = {e.group: e.load() for e in found.entry_points}
            self.assertEqual(groups, {"vllm.stat_logger_plugins": plugin.EnergyLogger,
                                      "vllm.general_plugins": plugin.register})
            self.assertEqual(len(found.requires), 1)
            if REAL:
                sys.path.insert(0, folder)
                self.addCleanup(sys.path.remove, folder)
                from vllm.v1.metrics.loggers import load_stat_logger_plugin_factories
                self.assertEqual(load_stat_logger_plugin_factories(), [plugin.EnergyLogger])


if __name__ == "__main__":
    unittest.main()
