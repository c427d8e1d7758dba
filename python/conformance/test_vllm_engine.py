"""An offline LLM of vLLM generates with the plugin installed: the script ends, and every run is stored with the tokens
that vLLM returned. The processor's build of vLLM will do. Skipped where vLLM is not installed.
"""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

from support import StoredCase

if importlib.util.find_spec("vllm") is None:
    raise unittest.SkipTest("vllm is not installed")

PYTHON = pathlib.Path(__file__).resolve().parents[1]
MODEL = PYTHON.parent / "models" / "demo"
LENGTHS = [10, 20, 30]  # tokens of each request of a call, so that the last run ends with the script
SCRIPT = """
import json, sys
if __name__ == "__main__":
    from vllm import LLM, SamplingParams
    llm = LLM(model=sys.argv[1], enforce_eager=True, dtype="float32", max_model_len=256)
    for length in json.loads(sys.argv[2]):
        out = llm.generate(["the cat sat on", "the dog"], SamplingParams(max_tokens=length, ignore_eos=True))
        print("perjoule-test", sum(len(o.prompt_token_ids) for o in out), sum(len(o.outputs[0].token_ids) for o in out))
"""


class Engine(StoredCase):
    def test_a_script_that_ends_after_its_last_request_keeps_all_runs(self):
        plugin = tempfile.TemporaryDirectory()
        self.addCleanup(plugin.cleanup)
        made = subprocess.run([sys.executable, PYTHON / "backend.py", "vllm", plugin.name], check=True, capture_output=True,
                              text=True)
        with zipfile.ZipFile(made.stdout.strip()) as wheel:
            wheel.extractall(plugin.name)
        script = pathlib.Path(self.folder, "generate.py")
        script.write_text(SCRIPT, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PYTHON), plugin.name]),
                       "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
        done = subprocess.run([sys.executable, script, MODEL, str(LENGTHS)], env=environment, capture_output=True, text=True,
                              timeout=1000)
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        returned = [tuple(map(int, line.split()[1:])) for line in done.stdout.splitlines() if line.startswith("perjoule-test")]
        self.assertEqual([out for _, out in returned], [2 * length for length in LENGTHS])
        stored = self.rows("SELECT status, input_tokens, output_tokens, total_energy_mj FROM profiling_runs ORDER BY created_at")
        self.assertEqual([(r["status"], r["input_tokens"], r["output_tokens"]) for r in stored],
                         [("completed", *tokens) for tokens in returned])
        self.assertTrue(all(r["total_energy_mj"] > 0 for r in stored))


if __name__ == "__main__":
    unittest.main()
