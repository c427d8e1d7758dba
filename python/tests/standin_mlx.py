"""A stand-in for MLX: arrays that are computed when somebody needs them, and modules that are dictionaries whose
`__call__` is looked up in their class. Work is noted where it is computed, so that a test sees in which module that was."""
import contextlib
import sys
import types

computed = []  # names of what was computed, in order
transforming = False


class array:
    def __init__(self, shape, dtype="mlx.core.float32", name=None, inputs=(), value=None):
        self.shape, self.dtype, self.name, self.inputs, self.value = tuple(shape), dtype, name, inputs, value
        self.is_done = name is None

    @property
    def size(self):
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def nbytes(self):
        return 4 * self.size

    def item(self):
        evaluate(self)
        return self.value


def evaluate(*arrays):
    if transforming:
        raise ValueError("[eval] Attempting to eval an array during function transformations like compile or vmap is not allowed.")
    for a in arrays:
        for each in a.inputs:
            evaluate(each)
        if not a.is_done:
            a.is_done = True
            computed.append(a.name)


def operation(name, shape, *inputs, value=None):
    return array(shape, name=name, inputs=inputs, value=value)


class Module(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        if name == "__class__":
            return object.__setattr__(self, name, value)
        self[name] = value
        return None


Module.__module__ = "mlx.nn.layers.base"


class Linear(Module):
    def __init__(self, inputs, outputs, name):
        super().__init__()
        self.weight, self.label = array((outputs, inputs)), name

    def __call__(self, x):
        return operation(self.label, (*x.shape[:-1], self.weight.shape[0]), x)


class Embedding(Module):
    def __init__(self, words, size):
        super().__init__()
        self.weight = array((words, size))

    def __call__(self, ids):
        return operation("embed_tokens", (*ids.shape, self.weight.shape[1]), ids)


class Attention(Module):
    def __init__(self, size):
        super().__init__()
        self.q_proj, self.o_proj = Linear(size, size, "q_proj"), Linear(size, size, "o_proj")

    def __call__(self, x, cache):
        q = self.q_proj(x)
        if cache is not None:
            cache.offset += x.shape[1]
        return self.o_proj(operation("attention", q.shape, q))


class Block(Module):
    def __init__(self, size):
        super().__init__()
        self.self_attn, self.up_proj = Attention(size), Linear(size, size, "up_proj")

    def __call__(self, x, cache):
        return self.up_proj(self.self_attn(x, cache))


class Cache:
    def __init__(self):
        self.offset = 0


class Model(Module):
    def __init__(self, words=11, size=4, layers=2):
        super().__init__()
        self.embed_tokens, self.layers = Embedding(words, size), [Block(size) for _ in range(layers)]
        self.lm_head = Linear(size, words, "lm_head")

    def __call__(self, ids, cache=None):
        x = self.embed_tokens(ids)
        for layer, kept in zip(self.layers, cache or [None] * len(self.layers)):
            x = layer(x, kept)
        return self.lm_head(x)


class Classifier(Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Linear(4, 4, "first"), Linear(4, 2, "second")

    def __call__(self, x):
        return self.second(self.first(x))


def ids(rows, length):
    return array((rows, length), "mlx.core.int32")


def generate_step(prompt, model, max_tokens=3):
    """As mlx-lm's: a prompt is read without its last token, whose pass yields the first token; the next pass is launched
    before a token is handed out, so that one more is computed than yielded."""
    cache = [Cache() for _ in model.layers]
    left = len(prompt)
    while left > 1:
        part = min(2, left - 1)
        model(ids(1, part), cache=cache)
        left -= part
    last = model(ids(1, 1), cache)
    for i in range(max_tokens):
        following = model(ids(1, 1), cache)
        evaluate(last)
        yield 100 + i, None
        last = following


@contextlib.contextmanager
def installed():
    """mlx.core and mlx_lm.generate, as far as the package uses them."""
    names = {"mlx": types.ModuleType("mlx"), "mlx.core": types.ModuleType("mlx.core"), "mlx_lm": types.ModuleType("mlx_lm"),
             "mlx_lm.generate": types.ModuleType("mlx_lm.generate")}
    names["mlx"].core = names["mlx.core"]
    core = names["mlx.core"]
    core.array, core.eval, core.default_device, core.__version__ = array, evaluate, lambda: "Device(cpu, 0)", "0"
    names["mlx_lm.generate"].generate_step = generate_step
    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update(names)
    computed.clear()
    try:
        yield names["mlx_lm.generate"]
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
