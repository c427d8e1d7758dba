"""Fake models with the attributes of torch's modules, enough to test names and timing without torch."""


class Module:
    """A module tree; forward calls the given function."""

    def __init__(self, weights=False, **children):
        self._modules, self._parameters = dict(children), {"weight": object()} if weights else {}

    def __getattr__(self, name):
        try:
            return self.__dict__["_modules"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

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
