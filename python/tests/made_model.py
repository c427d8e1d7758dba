"""Fake models with the attributes of torch's modules, enough to test names and timing without torch."""


class Handle:
    """Removes a hook, as torch's handles do."""

    def __init__(self, hooks, hook):
        self._hooks = hooks
        hooks[id(self)] = hook

    def remove(self):
        self._hooks.pop(id(self), None)


class Module:
    """A module tree; forward calls the given function."""

    def __init__(self, weights=False, **children):
        self._modules, self._parameters = dict(children), {"weight": object()} if weights else {}
        self._forward_pre_hooks, self._forward_hooks = {}, {}

    def __getattr__(self, name):
        try:
            return self.__dict__["_modules"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __call__(self, *args, **kwargs):
        for hook, takes_kwargs in list(self._forward_pre_hooks.values()):
            self.on_hook()
            hook(self, args, kwargs) if takes_kwargs else hook(self, args)
        out = self.forward(*args, **kwargs)
        for hook, _ in list(self._forward_hooks.values()):
            self.on_hook()
            hook(self, args, out)
        return out

    @staticmethod
    def on_hook():
        """Called before each hook."""

    def register_forward_pre_hook(self, hook, with_kwargs=False):
        return Handle(self._forward_pre_hooks, (hook, with_kwargs))

    def register_forward_hook(self, hook):
        return Handle(self._forward_hooks, (hook, False))

    def modules(self):
        yield self
        for child in self._modules.values():
            yield from child.modules()

    def parameters(self):
        return [p for module in self.modules() for p in module._parameters.values()]

    def buffers(self):
        return []

    def forward(self, x):
        return x


class Linear(Module):
    def __init__(self, inputs=4, outputs=4):
        super().__init__(weights=True)
        self.in_features, self.out_features = inputs, outputs

    def forward(self, x):
        return x + 1


class Norm(Linear):
    pass


class ModuleList(Module):
    def __init__(self, members):
        super().__init__(**{str(i): m for i, m in enumerate(members)})

    def __iter__(self):
        return iter(self._modules.values())


class Attention(Module):
    def __init__(self, gated=False):
        # as Phi-3 does, the output projection is registered first
        super().__init__(o_proj=Linear(4, 4), q_proj=Linear(4, 8 if gated else 4), k_proj=Linear(), v_proj=Linear())

    def forward(self, x):
        x = self.v_proj(self.k_proj(self.q_proj(x)))
        return self.o_proj(x * 2)


class Gated(Module):
    def __init__(self):
        super().__init__(gate_proj=Linear(), up_proj=Linear(), down_proj=Linear(), act_fn=Module())

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Block(Module):
    def __init__(self, mlp=None, gated=False):
        super().__init__(self_attn=Attention(gated), mlp=mlp or Gated(), input_layernorm=Norm(),
                         post_attention_layernorm=Norm())

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Inner(Module):
    def __init__(self, blocks):
        super().__init__(embed_tokens=Linear(), layers=ModuleList(blocks), norm=Norm(), rotary_emb=Module())

    def forward(self, x):
        x = self.embed_tokens(x)
        self.rotary_emb(x)
        for block in self.layers:
            x = block(x)
        return self.norm(x)


class Model(Module):
    def __init__(self, *blocks, **more):
        super().__init__(model=Inner(blocks or (Block(), Block())), lm_head=Linear(), **more)

    def forward(self, x):
        return self.lm_head(self.model(x))
