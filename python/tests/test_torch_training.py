"""The callbacks in the real trainers of transformers and Lightning, each skipped where it can't be imported."""
import os
import unittest

try:
    import torch
    import transformers
except ImportError as e:
    raise unittest.SkipTest(f"{e.name} is not installed: the tests with real trainers are not run") from None

from perjoule.training import lightning_callback, trainer_callback
from support import StoredCase

transformers.utils.logging.set_verbosity_error()


def small_model():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2))


class Trainers(StoredCase):
    def check(self, callback, steps, status="completed"):
        self.assertEqual((callback.recorder.steps, callback.result.status), (steps, status))
        rows = self.rows("SELECT energy_mj, duration_ms FROM pipeline_sections WHERE section_name = 'train_step'")
        self.assertEqual(len(rows), steps)
        self.assertTrue(all(r["energy_mj"] > 0 and r["duration_ms"] > 0 for r in rows))

    def trainer(self, callback, steps=4):
        try:
            import accelerate  # noqa: F401
        except ImportError:
            self.skipTest("accelerate is not installed: transformers' Trainer needs it")
        data = [{"input_ids": torch.arange(8) % 64, "labels": torch.arange(8) % 64} for _ in range(8)]
        options = transformers.TrainingArguments(
            output_dir=os.path.join(self.folder, "out"), max_steps=steps, per_device_train_batch_size=2,
            gradient_accumulation_steps=2, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True)
        return transformers.Trainer(model=small_model(), args=options, train_dataset=data, callbacks=[callback])

    def test_transformers_trainer(self):
        callback = trainer_callback(session=self.session())
        trainer = self.trainer(callback)
        trainer.train()
        self.check(callback, 4)  # optimiser steps, of two batches each
        self.assertEqual(callback.result.summary["model_name"], "LlamaForCausalLM")
        self.assertIn({"energy_joules": callback.result.joules, "step": 4}, trainer.state.log_history)
        trainer.train()
        self.assertEqual(len(self.rows("SELECT 1 FROM profiling_runs")), 2)

    def lightning(self, callback, fail_at=None):
        try:
            import lightning.pytorch as pl
        except ImportError:
            self.skipTest("lightning is not installed")

        class Module(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 4)

            def training_step(self, batch, index):
                if index == fail_at:
                    raise ValueError("nan")
                return self.layer(batch).sum()

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=1e-3)
        trainer = pl.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                             enable_progress_bar=False, enable_model_summary=False, callbacks=[callback],
                             default_root_dir=self.folder)
        trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(6, 4), batch_size=2))

    def test_lightning(self):
        callback = lightning_callback(session=self.session())
        self.lightning(callback)
        self.check(callback, 6)
        self.assertEqual(callback.result.summary["model_name"], "Module")

    def test_lightning_that_raises(self):
        callback = lightning_callback(session=self.session())
        with self.assertRaises(ValueError):
            self.lightning(callback, fail_at=1)
        self.check(callback, 1, "failed")
        self.assertIn("nan", self.rows("SELECT failure FROM profiling_runs")[0]["failure"])


if __name__ == "__main__":
    unittest.main()
