# pyright: basic
"""The decoder-only transformer of the paper's section 5.3, of any size: a loss and the types of its parameters.

Each layer is computed again in the backward pass, so that its activations need not be kept.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class Size:
    layers: int
    width: int
    hidden: int
    heads: int
    vocabulary: int
    context: int

    def parameters(self):
        return self.layers * (4 * self.width**2 + 2 * self.width * self.hidden) + 2 * self.vocabulary * self.width


THREE_B = Size(layers=62, width=2048, hidden=8192, heads=16, vocabulary=32000, context=512)
"""Table 2. The paper does not state heads, vocabulary and context."""


def attention(p, x, heads):
    batch, time, width = x.shape
    q, k, v = (jnp.reshape(x @ p[n], (batch, time, heads, width // heads)) for n in ("q", "k", "v"))
    scores = jnp.einsum("bthd,bshd->bhts", q, k) * (width // heads) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((time, time), bool)), scores, -1e9)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v).reshape(batch, time, width) @ p["o"]


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def layer(p, x, heads):
    x = x + attention(p, norm(x), heads)
    return x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]


def loss_of(size):
    def loss(params, tokens):
        x = params["embed"][tokens[:, :-1]]
        for p in params["layers"]:
            x = jax.checkpoint(layer, static_argnums=2)(p, x, size.heads)
        logits = jax.nn.log_softmax(norm(x) @ params["unembed"])
        return -jnp.take_along_axis(logits, tokens[:, 1:, None], -1).mean()

    return loss


def types_of(size, rows, dtype="bfloat16"):
    """Returns the types of parameters and of a batch of `rows` sequences."""

    def one(*shape):
        return jax.ShapeDtypeStruct(shape, dtype)

    square = {n: one(size.width, size.width) for n in ("q", "k", "v", "o")}
    layers = [
        square | {"up": one(size.width, size.hidden), "down": one(size.hidden, size.width)} for _ in range(size.layers)
    ]
    params = {
        "embed": one(size.vocabulary, size.width),
        "layers": layers,
        "unembed": one(size.width, size.vocabulary),
    }
    return params, jax.ShapeDtypeStruct((rows, size.context + 1), "int32")


def sgd(params, gradients):
    return jax.tree.map(lambda w, g: w - 0.001 * g.astype(w.dtype), params, gradients)
