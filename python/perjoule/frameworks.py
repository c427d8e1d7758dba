"""Waits for the work that a framework has launched. A framework that the program has not imported has launched none."""
from __future__ import annotations

import sys
from typing import Any, Callable, Dict

from .devices import synchronise_devices


def _wait_for_jax() -> None:
    jax: Any = sys.modules.get("jax")
    if jax is not None:  # each device does its work in order, and jax has no call that waits for one
        jax.block_until_ready([jax.device_put(0.0, device=device) + 0 for device in jax.local_devices()])


def _wait_for_cupy() -> None:
    cupy: Any = sys.modules.get("cupy")
    if cupy is not None:
        for index in range(cupy.cuda.runtime.getDeviceCount()):
            cupy.cuda.Device(index).synchronize()


WAITS: Dict[str, Callable[[], None]] = {"torch": synchronise_devices, "jax": _wait_for_jax, "cupy": _wait_for_cupy}
