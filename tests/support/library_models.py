"""Models of public libraries for tests of pipelines; their layers were not written for this project."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import optax
from flax import nnx

WIDTH, WORDS, ROWS, LENGTH = 16, 32, 16, 8


@dataclass(frozen=True)
class Model:
    """A loss with its parameters and a batch: `loss(params, *batch)` returns the loss; with `aux`, `(loss, aux)`."""

    loss: Callable[..., Any]
    params: Any
    batch: tuple[Any, ...]
    aux: bool = False
    zero: tuple[str, ...] = ()
    """Substrings of the names of parameters whose true gradient is 0.

    Their values are not compared, because Adam amplifies the rounding errors of such gradients.
    """


def _tokens(seed: int = 0) -> jax.Array:
    return jax.random.randint(jax.random.key(seed), (ROWS, LENGTH), 0, WORDS)


def _images() -> jax.Array:
    return jax.random.normal(jax.random.key(5), (ROWS, 8, 8, 3))


def _cross_entropy(logits: Any, labels: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


class _Block(nn.Module):
    """A pre-norm transformer block of flax's own attention and layers."""

    dropout: float = 0.0

    @nn.compact
    def __call__(self, x: Any, memory: Any = None) -> Any:
        x = x + nn.MultiHeadDotProductAttention(2)(nn.LayerNorm()(x))
        if memory is not None:
            x = x + nn.MultiHeadDotProductAttention(2)(nn.LayerNorm()(x), memory)
        h = nn.Dense(WIDTH)(nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x))))
        return x + nn.Dropout(self.dropout, deterministic=self.dropout == 0.0)(h)


class _Transformer(nn.Module):
    layers: int = 8
    remat: bool = False
    dropout: float = 0.0

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        x = nn.Embed(WORDS, WIDTH)(tokens)
        block = nn.remat(_Block) if self.remat else _Block
        for i in range(self.layers):
            x = block(self.dropout, name=f"block_{i}")(x)
        return nn.Dense(WORDS)(nn.LayerNorm()(x))


def linen_transformer(remat: bool = False) -> Model:
    model = _Transformer(remat=remat)

    def loss(params: Any, tokens: Any) -> Any:
        return _cross_entropy(model.apply(params, tokens), jnp.roll(tokens, -1, 1))

    return Model(loss, model.init(jax.random.key(0), _tokens()), (_tokens(),), zero=("key']['bias",))


def linen_scanned() -> Model:
    class Scanned(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            x = nn.Embed(WORDS, WIDTH)(tokens)

            def body(block: Any, carry: Any, _: Any) -> Any:
                return block(carry), None

            stacked = nn.scan(body, variable_axes={"params": 0}, split_rngs={"params": True}, length=8)
            x, _ = stacked(nn.remat(_Block)(name="layers"), x, None)
            return nn.Dense(WORDS)(nn.LayerNorm()(x))

    model = Scanned()

    def loss(params: Any, tokens: Any) -> Any:
        return _cross_entropy(model.apply(params, tokens), jnp.roll(tokens, -1, 1))

    return Model(loss, model.init(jax.random.key(0), _tokens()), (_tokens(),), zero=("key']['bias",))


class _ConvNet(nn.Module):
    """A residual network whose state is the statistics of batch normalization."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(8, (3, 3))(x)
        for i in range(8):
            h = nn.relu(nn.BatchNorm(use_running_average=False, name=f"norm_{i}")(x))
            x = x + nn.Conv(8, (3, 3), name=f"conv_{i}")(h)
        return nn.Dense(10)(x.mean((1, 2)))


def linen_conv_net() -> Model:
    model, images = _ConvNet(), _images()
    labels = jax.random.randint(jax.random.key(6), (ROWS,), 0, 10)
    variables = model.init(jax.random.key(0), images)
    statistics = variables["batch_stats"]

    def loss(params: Any, images: Any, labels: Any) -> Any:
        state = {"params": params, "batch_stats": statistics}
        logits, changed = model.apply(state, images, mutable=["batch_stats"])
        return _cross_entropy(logits, labels), changed["batch_stats"]

    return Model(loss, variables["params"], (images, labels), aux=True)


class _UNet(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        skips: list[Any] = []
        x = nn.Conv(8, (3, 3))(x)
        for width in (8, 16):
            x = nn.relu(nn.GroupNorm(4)(nn.Conv(width, (3, 3))(x)))
            skips.append(x)
            x = nn.avg_pool(x, (2, 2), (2, 2))
        x = nn.relu(nn.Conv(16, (3, 3))(x))
        for width in (16, 8):
            x = nn.ConvTranspose(width, (2, 2), (2, 2))(x)
            x = nn.relu(nn.Conv(width, (3, 3))(jnp.concatenate([x, skips.pop()], -1)))
        return nn.Conv(3, (1, 1))(x)


def linen_u_net() -> Model:
    model, images = _UNet(), _images()

    def loss(params: Any, images: Any) -> Any:
        return ((model.apply(params, images) - images) ** 2).mean()

    return Model(loss, model.init(jax.random.key(0), images), (images,))


class _EncoderDecoder(nn.Module):
    @nn.compact
    def __call__(self, source: Any, target: Any) -> Any:
        embed = nn.Embed(WORDS, WIDTH)
        x, y = embed(source), embed(target)
        for i in range(4):
            x = _Block(name=f"encoder_{i}")(x)
        for i in range(4):
            y = _Block(name=f"decoder_{i}")(y, x)
        return embed.attend(nn.LayerNorm()(y))


def linen_encoder_decoder() -> Model:
    """Builds a model with two inputs, an embedding used three times, and an encoder read by each decoder layer."""
    model = _EncoderDecoder()
    source, target = _tokens(1), _tokens(2)

    def loss(params: Any, source: Any, target: Any) -> Any:
        return _cross_entropy(model.apply(params, source, target), jnp.roll(target, -1, 1))

    params = model.init(jax.random.key(0), source, target)
    return Model(loss, params, (source, target), zero=("key']['bias",))


def nnx_mlp() -> Model:
    class Net(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.embed = nnx.Embed(WORDS, WIDTH, rngs=rngs)
            self.layers = nnx.List([nnx.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(8)])
            self.norms = nnx.List([nnx.LayerNorm(WIDTH, rngs=rngs) for _ in range(8)])

        def __call__(self, tokens: Any) -> Any:
            x = self.embed(tokens)
            for layer, norm in zip(self.layers, self.norms, strict=True):
                x = x + nnx.gelu(layer(norm(x)))
            return self.embed.attend(x)

    definition, params = nnx.split(Net(nnx.Rngs(0)), nnx.Param)

    def loss(params: Any, tokens: Any) -> Any:
        return _cross_entropy(nnx.merge(definition, params)(tokens), jnp.roll(tokens, -1, 1))

    return Model(loss, params, (_tokens(),))


def equinox_net() -> Model:
    class Net(eqx.Module):
        embed: eqx.nn.Embedding
        layers: list[tuple[eqx.nn.LayerNorm, eqx.nn.MultiheadAttention, eqx.nn.MLP]]
        head: eqx.nn.Linear

        def __init__(self, key: Any) -> None:
            keys = jax.random.split(key, 18)
            self.embed = eqx.nn.Embedding(WORDS, WIDTH, key=keys[0])
            self.head = eqx.nn.Linear(WIDTH, WORDS, key=keys[1])
            self.layers = [
                (
                    eqx.nn.LayerNorm(WIDTH),
                    eqx.nn.MultiheadAttention(2, WIDTH, key=keys[2 + 2 * i]),
                    eqx.nn.MLP(WIDTH, WIDTH, 2 * WIDTH, 1, key=keys[3 + 2 * i]),
                )
                for i in range(8)
            ]

        def __call__(self, tokens: Any) -> Any:
            x = jax.vmap(self.embed)(tokens)
            for norm, attention, mlp in self.layers:
                h = jax.vmap(norm)(x)
                x = x + attention(h, h, h) + jax.vmap(mlp)(h)
            return jax.vmap(self.head)(x)

    params, static = eqx.partition(Net(jax.random.key(0)), eqx.is_inexact_array)

    def loss(params: Any, tokens: Any) -> Any:
        return _cross_entropy(jax.vmap(eqx.combine(params, static))(tokens), jnp.roll(tokens, -1, 1))

    return Model(loss, params, (_tokens(),))


def haiku_transformer() -> Model:
    def forward(tokens: Any) -> Any:
        start = hk.initializers.VarianceScaling(1.0)
        x = hk.Embed(WORDS, WIDTH)(tokens)
        for _ in range(8):
            h = hk.LayerNorm(-1, True, True)(x)
            x = x + hk.MultiHeadAttention(2, WIDTH // 2, w_init=start, model_size=WIDTH)(h, h, h)
            x = x + hk.nets.MLP([2 * WIDTH, WIDTH])(hk.LayerNorm(-1, True, True)(x))
        return hk.Linear(WORDS)(x)

    made = hk.without_apply_rng(hk.transform(forward))

    def loss(params: Any, tokens: Any) -> Any:
        return _cross_entropy(made.apply(params, tokens), jnp.roll(tokens, -1, 1))

    return Model(loss, made.init(jax.random.key(0), _tokens()), (_tokens(),), zero=("key']['b']",))


MODELS: dict[str, Callable[[], Model]] = {
    "flax transformer": linen_transformer,
    "flax remat transformer": lambda: linen_transformer(remat=True),
    "flax scanned transformer": linen_scanned,
    "flax conv net, batch-norm": linen_conv_net,
    "flax U-Net": linen_u_net,
    "flax encoder-decoder, tied": linen_encoder_decoder,
    "flax nnx, tied": nnx_mlp,
    "equinox": equinox_net,
    "haiku transformer": haiku_transformer,
}
