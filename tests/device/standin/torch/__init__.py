"""As much of torch as the load of tools/device/check.py asks for, without a card."""
import time

bfloat16 = "bfloat16"


class Matrix:
    def __matmul__(self, other):
        time.sleep(.001)
        return self


def randn(*shape, device, dtype):
    assert device == "cuda" and dtype is bfloat16 and len(shape) == 2
    return Matrix()


class cuda:
    is_available = staticmethod(lambda: True)
    synchronize = staticmethod(lambda: None)
