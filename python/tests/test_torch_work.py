"""FLOPs and bytes of modules, against torch's own counter and sizes that are known.

Skipped, with the reason, where torch and transformers can't be imported.
"""
import json
import math
import os
import pathlib
import subprocess
import time
import unittest
import unittest.mock

try:
    import torch
    import transformers
    from torch.utils.flop_counter import FlopCounterMode
except ImportError as e:
    raise unittest.SkipTest(f"{e.name} is not installed: the tests with real models are not run") from None

import perjoule
from perjoule.devices import CudaClock
from perjoule.names import Part, plan_of
from perjoule.watch import Watch
from perjoule.work import Pass, Work, nbytes, of_module, visible_pairs
from standin_cuda import Device, Machine
from support import StoredCase, recorded_warnings

torch.manual_seed(0)
torch.set_num_threads(1)
PRODUCTS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")


def counted(body):
    """FLOPs that torch counts: of products, and of attention without regard to masks."""
    with FlopCounterMode(display=False) as counter:
        body()
    by = {str(op): flops for op, flops in counter.get_flop_counts()["Global"].items()}
    attention = sum(flops for op, flops in by.items() if "attention" in op or "bmm" in op)
    return sum(by.values()) - attention, attention


class Models(StoredCase):
    def setUp(self):
        super().setUp()
        recorded_warnings(self)

    def work(self, run="last"):
        """FLOPs and bytes by position and component."""
        rows = self.rows("SELECT t.position, c.component_name, sum(c.flops_estimate) AS flops, sum(c.bytes_estimate) AS bytes "
                         "FROM component_metrics c LEFT JOIN layer_metrics l ON l.id = c.layer_metric_id "
                         "JOIN tokens t ON t.id = coalesce(l.token_id, l.step_id, c.token_id, c.step_id) GROUP BY 1, 2")
        return {(r["position"], r["component_name"]): (r["flops"], r["bytes"]) for r in rows}

    def test_a_decoder(self):
        shape = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=64)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape)).eval()
        ids = torch.tensor([[5, 9, 20, 33, 7], [6, 8, 21, 30, 9]])
        options = dict(attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=0, eos_token_id=None)
        with perjoule.InferencePipelineProfiler(model=model, session=self.session()).run():
            model.generate(ids, max_new_tokens=6, **options)
        work = self.work()
        # position 0: the prompt, whose attention sees the past alone; then a pass for each token
        products, attention = counted(lambda: model.generate(ids, max_new_tokens=1, **options))
        self.assertEqual(sum(work[0, name][0] for name in PRODUCTS), products)
        heads, width, rows, layers = 4, 32, 2, 3
        visible = rows * layers * 15
        self.assertEqual(attention, 4 * width * rows * layers * 25)
        self.assertEqual(work[0, "attention"][0], 4 * width * visible + 5 * heads * visible + rows * layers * 5 * width)
        for position in range(1, 6):
            keys, shorter, longer = 5 + position, *(
                counted(lambda: model.generate(ids, max_new_tokens=position + more, **options)) for more in (0, 1))
            self.assertEqual(sum(work[position, name][0] for name in PRODUCTS), longer[0] - shorter[0])
            pairs = rows * layers * keys
            self.assertEqual(longer[1] - shorter[1], 4 * width * pairs)
            self.assertEqual(work[position, "attention"],
                             (4 * width * pairs + 5 * heads * pairs + rows * layers * width,
                              4 * rows * layers * (2 * 16 * (keys + 1) + 2 * width)))
            self.assertEqual(work[position, "q_proj"][1], 4 * layers * (32 * 32 + rows * (32 + 32)))
        self.assertEqual(work[1, "embed_tokens"], (0, 4 * rows * 2 * 32))
        self.assertEqual(work[1, "act"], (5 * rows * layers * 48, 4 * 5 * rows * layers * 48))
        self.assertEqual(work[1, "norm"], (7 * rows * 32, 4 * (32 + 2 * rows * 32)))

    def test_what_is_derived_from_them(self):
        """The command's tables need no more than the components' FLOPs and bytes."""
        shape = dict(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=64)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape)).eval()
        with perjoule.InferencePipelineProfiler(model=model, session=self.session(), statistics_every=2).run():
            model.generate(torch.tensor([[5, 9, 20, 33, 7]]), max_new_tokens=12, do_sample=False, eos_token_id=None)
        rows = self.rows("SELECT class_name, sum(flops) AS flops, sum(bytes) AS bytes FROM run_classes GROUP BY 1")
        known = {r["class_name"] for r in rows if r["flops"] and r["bytes"]}
        self.assertLessEqual({"q_proj", "down_proj", "lm_head", "attention"}, known)
        both, = self.rows("SELECT count(*) AS n FROM component_metrics WHERE activation_max IS NOT NULL AND flops_estimate > 0")
        self.assertGreater(both["n"], 0)  # statistics and work are in the same details

    def test_advice_knows_the_parts(self):
        """On a machine whose power is a recording that was measured."""
        trace = pathlib.Path(self.folder, "power.csv")
        trace.write_text("timestamp_ms,cpu_mw\n" + "".join(f"{i},40000\n" for i in range(0, 20000, 5)))
        shape = dict(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=64)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape)).eval()
        profiler = perjoule.InferencePipelineProfiler(model=model, session=self.session(power=f"replay:{trace}"))
        with profiler.run():
            model.generate(torch.tensor([[5, 9, 20, 33, 7]]), max_new_tokens=12, do_sample=False, eos_token_id=None)
        facts = profiler.get_summary()["model"]
        self.assertEqual(facts["weight_bytes"], 4 * (facts["parameters"] + sum(b.numel() for b in model.buffers())))
        self.assertEqual(facts["kv_bytes_per_token"], 2 * 2 * 2 * 16 * 4)
        said = json.loads(subprocess.run([os.environ["PERJOULE_PROGRAM"], "show", "last", "--advice", "--json", "--db", self.db],
                                         check=True, capture_output=True, text=True).stdout)
        self.assertIsNone(said["refusal"])
        reasons = {each["rule"]: each["reason"] for each in said["silent"]}
        for rule in ("batch-up", "dtype"):
            self.assertEqual(reasons[rule], "the processor's cache holds all weights")
        self.assertEqual(reasons["calibrate"], "only components of perjoule's engine can be calibrated")

    def test_experts(self):
        config = transformers.MixtralConfig(
            vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64)
        model = transformers.MixtralForCausalLM(config).eval()
        with perjoule.InferencePipelineProfiler(model=model, session=self.session()).run():
            model.generate(torch.tensor([[5, 9, 20]]), max_new_tokens=3, do_sample=False, eos_token_id=None)
        work = self.work()
        self.assertEqual(work[0, "experts"], (2 * 3 * 2 * 3 * 32 * 48, None))  # which of them rows share is not known
        self.assertEqual(work[1, "experts"], (2 * 2 * 3 * 32 * 48, 4 * (2 * 3 * 32 * 48 + 32 + 32)))
        self.assertEqual(work[1, "router"][0], 2 * 4 * 32)


class Deep(StoredCase):
    IDS = torch.tensor([[5, 9, 20, 33, 7]])

    def setUp(self):
        super().setUp()
        self.caught = recorded_warnings(self)

    def model(self, **more):
        shape = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=64)
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape, **more)).eval()

    def operations(self, run):
        rows = self.rows("SELECT component_name, operation_name, count(*) AS n, sum(flops_estimate) AS flops, "
                         "min(energy_mj) AS least FROM operations_of_runs WHERE run_id = ? GROUP BY 1, 2", run)
        return {(r["component_name"], r["operation_name"]): r for r in rows}

    def run_of(self, model, body):
        profiler = perjoule.InferencePipelineProfiler(model=model, session=self.session(), profiling_depth="deep")
        with profiler.run():
            out = body()
        return out, profiler.get_summary(), profiler.result.run_id

    def test_operations_of_components(self):
        options = dict(max_new_tokens=4, do_sample=False, eos_token_id=None, output_logits=True, return_dict_in_generate=True)
        for attention, expected in (("sdpa", {"fused_attention": 8}), ("eager", {"matmul": 16, "softmax": 8})):
            model = self.model(attn_implementation=attention)
            plain = model.generate(self.IDS, **options)
            before = [dict(vars(m)) for m in model.modules()]
            out, summary, run = self.run_of(model, lambda: model.generate(self.IDS, **options))
            self.assertEqual([dict(vars(m)) for m in model.modules()], before)
            self.assertTrue(all(map(torch.equal, out.logits, plain.logits)))
            self.assertEqual((summary["output_tokens"], summary["settings"]["level"]), (4, "fine"))
            found = self.operations(run)
            for name, count in expected.items():
                self.assertEqual(found["attention", name]["n"], count)
            components = self.rows("SELECT component_name, sum(flops_estimate) AS flops FROM components_of_runs "
                                   "WHERE run_id = ? GROUP BY 1", run)
            for row in components:
                if row["component_name"] in PRODUCTS:
                    self.assertEqual(found[row["component_name"], "matmul"]["flops"], row["flops"])
            self.assertIn(("act", "activation"), found)
            self.assertTrue(all(r["least"] is not None for r in found.values()))
            outside, = self.rows("SELECT count(*) AS n FROM operations_of_runs o JOIN component_metrics c ON c.id = "
                                 "o.component_metric_id WHERE run_id = ? AND o.time_ms > c.time_ms + 1e-6", run)
            self.assertEqual(outside["n"], 0)

    def test_inference_mode_leaves_composites_whole(self):
        model = self.model()
        with torch.inference_mode():
            plain = model(self.IDS).logits
            out, _, run = self.run_of(model, lambda: model(self.IDS).logits)
        self.assertTrue(torch.equal(out, plain))
        found = self.operations(run)
        self.assertEqual(found["q_proj", "matmul"]["flops"], 2 * 2 * 5 * 32 * 32)
        self.assertEqual(found["attention", "fused_attention"]["flops"], 2 * 4 * 32 * 25)

    def test_a_pass_that_raises_leaves_the_mode(self):
        model = self.model()

        def broken(x):
            raise ZeroDivisionError
        profiler = perjoule.InferencePipelineProfiler(model=model, session=self.session(), profiling_depth="deep")
        model.model.norm.forward = broken
        with self.assertRaises(ZeroDivisionError), profiler.run():
            model(self.IDS)
        self.assertEqual(torch.utils._python_dispatch._len_torch_dispatch_stack(), 0)

    def test_compiled_blocks_are_left_alone(self):
        model = self.model()
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)
        graphs = []
        for layer in model.model.layers:
            layer.compile(backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
        with torch.no_grad():
            model(self.IDS, use_cache=False)
            made = len(graphs)
            _, summary, run = self.run_of(model, lambda: model(self.IDS, use_cache=False))
        self.assertEqual((len(graphs), self.operations(run)), (made, {}))
        self.assertIn("compiled", summary["settings"]["operations"])
        self.assertTrue(any("operations" in str(w.message) for w in self.caught))

    def test_on_a_device_they_are_spans_of_it(self):
        """Dispatch is torch's, the device a stand-in, whose clock tells when the operations ran."""
        machine = Machine(event_ns=1000)
        standin = machine.torch(compiler=torch.compiler, is_tensor=torch.is_tensor)
        standin.nn = torch.nn
        machine.work = lambda ns: setattr(machine, "now", time.monotonic_ns())
        machine.work(0)
        clock = lambda torch, model: (CudaClock(standin, Device("cuda:0")), "cuda")  # noqa: E731
        model = self.model()
        with unittest.mock.patch("perjoule.watch.clock_for", clock), torch.no_grad(), \
                unittest.mock.patch("perjoule.watch.Watch._spare_stamps"), self.session().run(depth="deep") as run:
            watch = Watch(standin, run, model, plan_of(model), statistics_every=0, depth="deep")
            watch.attach()
            model(self.IDS)
            self.assertEqual(watch.finish()["level"], "fine")
        rows = self.rows("SELECT operation_name, o.device, c.device AS of_component FROM deep_operation_metrics o "
                         "JOIN component_metrics c ON c.id = o.component_metric_id")
        self.assertEqual(len([r for r in rows if r["operation_name"] == "matmul"]), 2 * 7 + 1)
        self.assertTrue(all(r["device"] == r["of_component"] and r["device"] for r in rows))


class Modules(unittest.TestCase):
    def check(self, module, x, flops):
        with FlopCounterMode(display=False) as counter:
            out = module(x)
        self.assertEqual(counter.get_total_flops(), flops)
        self.assertEqual(of_module(module)((x,), out)[0], flops)
        return of_module(module)((x,), out)[1]

    def test_convolutions(self):
        x = torch.rand(2, 4, 8, 8)
        self.check(torch.nn.Conv2d(4, 6, 3, bias=False), x, 2 * 2 * 6 * 36 * 4 * 9)
        self.check(torch.nn.ConvTranspose2d(4, 6, 3, bias=False), x, 2 * 2 * 4 * 64 * 6 * 9)
        moved = self.check(torch.nn.Conv1d(4, 4, 3, groups=4, bias=False), x[0, :, :, 0][None], 2 * 4 * 6 * 3)
        self.assertEqual(moved, 4 * (4 * 3 + 4 * 8 + 4 * 6))

    def test_weights_count_as_they_are_stored(self):
        class Packed(torch.nn.Module):
            in_features, out_features = 64, 32

            def __init__(self):
                super().__init__()
                self.register_buffer("qweight", torch.zeros(32 * 64 // 8, dtype=torch.int32))

        x, out = torch.rand(3, 64), torch.rand(3, 32)
        self.assertEqual(of_module(Packed())((x,), out), (2 * 3 * 64 * 32, 32 * 64 / 2 + 4 * 3 * 96))
        half = torch.nn.Linear(64, 32).to(torch.bfloat16)
        self.assertEqual(of_module(half)((x.bfloat16(),), out.bfloat16()),
                         (2 * 3 * 64 * 32 + 3 * 32, 2 * (64 * 32 + 32 + 3 * 96)))

    def test_an_adapter_has_its_own_products(self):
        class Adapted(torch.nn.Module):
            in_features, out_features = 64, 32

            def __init__(self):
                super().__init__()
                self.base, self.a, self.b = (torch.nn.Linear(i, o, bias=False) for i, o in ((64, 32), (64, 4), (4, 32)))

        self.assertEqual(of_module(Adapted())((torch.rand(3, 64),), torch.rand(3, 32))[0], 2 * 3 * (64 * 32 + 64 * 4 + 4 * 32))

    def test_a_feed_forward_block_as_a_whole(self):
        config = transformers.LlamaConfig(hidden_size=32, intermediate_size=48)
        block = transformers.models.llama.modeling_llama.LlamaMLP(config)
        self.check(block, torch.rand(3, 32), 2 * 3 * 3 * 32 * 48)

    def test_visible_pairs_are_counted(self):
        for query, cached, window in ((1, 0, None), (5, 3, None), (5, 0, 3), (4, 2, 3), (1, 10, 4), (3, 10, 4)):
            pairs = sum(min(cached + i + 1, window or math.inf) for i in range(query))
            self.assertEqual(visible_pairs(Pass(1, query, cached, True), query, window), pairs)
        self.assertEqual(visible_pairs(Pass(1, 5, 0, False), 5, None), 25)

    def test_what_is_called_in_another_way_is_unknown(self):
        work = Work(Part("x", torch.nn.ConvTranspose2d(4, 6, 3), "x"))
        self.assertTrue(all(map(math.isnan, work.of_call((), None))))
        self.assertEqual(nbytes(torch.rand(3, dtype=torch.float64)), 24)


if __name__ == "__main__":
    unittest.main()
