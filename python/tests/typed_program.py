"""A typical typed user program; it is only type-checked, never run."""
from typing import Any, Optional

import perjoule
from perjoule.window import ZeusMonitor


@perjoule.measure("step", report=print)
def step(n: int) -> int:
    return n + 1


@perjoule.measure
def plain(n: int) -> int:
    return n


def measured() -> Optional[float]:
    with perjoule.measure("load") as m:
        step(plain(1))
    return m.joules


async def later() -> Optional[float]:
    async with perjoule.measure() as m:
        pass
    return m.seconds


def profiled(model: Any, tokenizer: Any) -> Any:
    profiler = perjoule.InferencePipelineProfiler(model=model, profiling_depth="module", tokenizer=tokenizer)
    with profiler.run(prompt="hello", tags=["first"]) as session:
        model.generate()
    print(session.run_id, session.result.energy)
    return profiler.get_summary()["joules_per_token"]


def by_hand() -> str:
    with perjoule.Session(power="sim", database="none") as session, session.run(prompt="p") as run:
        with run.phase("prefill"), run.section("s"), run.token(0, "x"), run.layer(0), run.component("q_proj"):
            run.set_tokens(1, 1)
        window = session.window()
        energy = window.end().energy
    if energy is not None and energy.lo_mj is not None:
        print(energy.joules - energy.lo_mj / 1000)
    return run.end().run_id


def zeus() -> Optional[float]:
    monitor = ZeusMonitor(gpu_indices=[0])
    monitor.begin_window("a")
    return monitor.end_window("a").total_energy


def trained() -> Optional[float]:
    recorder = perjoule.TrainingRecorder(tags=["t"])
    recorder.begin("mine")
    recorder.begin_step()
    recorder.end_step()
    recorder.end()
    perjoule.trainer_callback(tags=["t"])
    return recorder.joules_per_step


def read() -> Any:
    database = perjoule.open("runs.db")
    run = database.run("last")
    rows = run.rows("tokens")
    run.report("run.html")
    database.runs(tag="mine").to_pandas()
    for each in database:
        print(each.id, len(rows), run.requests())
    return run.compare(database.runs()[0]), run.to_pandas("components"), run.to_polars("power")
