"""Losses that are a mean over the examples: plain regression, classification, sequences, images."""

from typing import Any

import jax
import optax

from support.losses.table import (
    CLASSES,
    ROWS,
    TIME,
    WIDTH,
    any_jax,
    any_jnp,
    any_lax,
    case,
    errors,
    logits,
    model,
    token_losses,
)

_optax: Any = optax


@case("mean")
def squared(p: Any, b: Any) -> Any:
    return errors(p, b).mean()


@case("mean")
def absolute(p: Any, b: Any) -> Any:
    return abs(model(p, b) - b["y"]).mean()


@case("mean")
def huber(p: Any, b: Any) -> Any:
    return _optax.huber_loss(model(p, b), b["y"]).mean()


@case("mean")
def quantile(p: Any, b: Any) -> Any:
    error = b["y"] - model(p, b)
    return any_jnp.maximum(0.9 * error, -0.1 * error).mean()


@case("mean")
def class_picked(p: Any, b: Any) -> Any:
    scores = jax.nn.log_softmax(logits(p, b))
    return -any_jnp.take_along_axis(scores, b["label"][:, None], 1).mean()


@case("mean")
def class_by_one_hot(p: Any, b: Any) -> Any:
    return -(jax.nn.log_softmax(logits(p, b)) * jax.nn.one_hot(b["label"], CLASSES)).sum(-1).mean()


@case("mean")
def class_by_own_number(p: Any, b: Any) -> Any:
    scores = jax.nn.log_softmax(logits(p, b))
    return -scores[any_jnp.arange(scores.shape[0]), b["label"]].mean()


@case("mean")
def class_of_optax(p: Any, b: Any) -> Any:
    return _optax.softmax_cross_entropy_with_integer_labels(logits(p, b), b["label"]).mean()


@case("mean")
def binary(p: Any, b: Any) -> Any:
    return _optax.sigmoid_binary_cross_entropy(logits(p, b)[:, 0], b["keep"]).mean()


@case("mean")
def focal(p: Any, b: Any) -> Any:
    chance = any_jnp.take_along_axis(jax.nn.softmax(logits(p, b)), b["label"][:, None], 1)
    return -((1 - chance) ** 2 * any_jnp.log(chance)).mean()


@case("mean")
def smoothed_labels(p: Any, b: Any) -> Any:
    target = _optax.smooth_labels(jax.nn.one_hot(b["label"], CLASSES), 0.1)
    return _optax.softmax_cross_entropy(logits(p, b), target).mean()


@case("mean")
def distilled(p: Any, b: Any) -> Any:
    teacher = any_lax.stop_gradient(jax.nn.softmax(b["y"] @ p["out"]))
    return (teacher * (any_jnp.log(teacher) - jax.nn.log_softmax(logits(p, b)))).sum(-1).mean()


@case("mean")
def hinge(p: Any, b: Any) -> Any:
    return jax.nn.relu(1 - (2 * b["keep"] - 1) * logits(p, b)[:, 0]).mean()


@case("mean")
def cosine(p: Any, b: Any) -> Any:
    return _optax.cosine_distance(model(p, b), b["y"], epsilon=1e-6).mean()


@case("mean")
def with_penalty(p: Any, b: Any) -> Any:
    return errors(p, b).mean() + 1e-2 * (p["w"] ** 2).sum()


@case("mean")
def two_means(p: Any, b: Any) -> Any:
    return errors(p, b).mean() + 0.3 * any_jnp.square(logits(p, b)).mean()


@case("mean")
def of_a_product(p: Any, b: Any) -> Any:
    return any_jnp.einsum("bi,bi->", model(p, b), b["y"]) / b["x"].shape[0]


@case("mean")
def divided_by_hand(p: Any, b: Any) -> Any:
    return errors(p, b).sum() * (1.0 / b["x"].shape[0])


@case("mean")
def per_example(p: Any, b: Any) -> Any:
    return any_jax.vmap(lambda x, y: ((any_jnp.tanh(x @ p["w"]) - y) ** 2).sum())(b["x"], b["y"]).mean()


@case("mean")
def per_example_and_time(p: Any, b: Any) -> Any:
    step = any_jax.vmap(any_jax.vmap(lambda x: any_jnp.tanh(x @ p["w"]).sum()))
    return step(b["seq"]).mean()


@case("mean")
def per_example_in_the_middle(p: Any, b: Any) -> Any:
    by_time = any_jnp.swapaxes(b["seq"], 0, 1)
    return any_jax.vmap(lambda x: any_jnp.tanh(x @ p["w"]).sum(), in_axes=1, out_axes=0)(by_time).mean()


@case("mean")
def mean_of_masked_means(p: Any, b: Any) -> Any:
    mask = b["mask"].at[:, 0].set(1.0)
    return ((token_losses(p, b) * mask).sum(1) / mask.sum(1)).mean()


@case("mean")
def tokens(p: Any, b: Any) -> Any:
    return token_losses(p, b).mean()


@case("mean")
def tokens_in_one_row(p: Any, b: Any) -> Any:
    flat = b["seq"].reshape(-1, WIDTH)
    scores = jax.nn.log_softmax(any_jnp.tanh(flat @ p["w"]) @ p["out"])
    return -any_jnp.take_along_axis(scores, b["tokens"].reshape(-1, 1), 1).mean()


@case("mean")
def tokens_by_time(p: Any, b: Any) -> Any:
    flat = any_jnp.swapaxes(b["seq"], 0, 1).reshape(-1, WIDTH)
    labels = b["tokens"].T.reshape(-1)
    scores = jax.nn.log_softmax(flat @ p["out"])
    return -scores[any_jnp.arange(labels.shape[0]), labels].mean()


@case("mean")
def next_token(p: Any, b: Any) -> Any:
    scores = jax.nn.log_softmax(p["table"][b["tokens"][:, :-1]] @ p["out"])
    return -any_jnp.take_along_axis(scores, b["tokens"][:, 1:, None], 2).mean()


@case("mean")
def tied_embedding(p: Any, b: Any) -> Any:
    hidden = any_jnp.tanh(p["table"][b["tokens"]].mean(1) @ p["w"])
    return _optax.softmax_cross_entropy_with_integer_labels(hidden @ p["table"].T, b["label"]).mean()


@case("mean")
def layer_norm(p: Any, b: Any) -> Any:
    x = model(p, b)
    return (p["b"] * (x - x.mean(-1, keepdims=True)) / any_jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * b["y"]).mean()


@case("mean")
def root_mean_square_norm(p: Any, b: Any) -> Any:
    x = model(p, b)
    return (x * any_lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5) * b["y"]).mean()


@case("mean")
def instance_norm(p: Any, b: Any) -> Any:
    x = any_jnp.tanh(b["seq"] @ p["w"])
    return ((x - x.mean(1, keepdims=True)) / (x.std(1, keepdims=True) + 1e-3) * b["seq"]).mean()


@case("mean")
def unit_rows(p: Any, b: Any) -> Any:
    x = model(p, b)
    return (x / (any_jnp.linalg.norm(x, axis=-1, keepdims=True) + 1e-3) * b["y"]).mean()


def _attention(p: Any, b: Any, bias: Any) -> Any:
    q, k, v = b["seq"] @ p["w"], b["seq"] @ p["w2"], b["seq"]
    return jax.nn.softmax(any_jnp.einsum("btd,bsd->bts", q, k) + bias) @ v


@case("mean")
def attention(p: Any, b: Any) -> Any:
    return (_attention(p, b, 0.0) ** 2).mean()


@case("mean")
def causal_attention(p: Any, b: Any) -> Any:
    bias = any_jnp.where(any_jnp.tril(any_jnp.ones((TIME, TIME), bool)), 0.0, -1e9)
    return (_attention(p, b, bias) ** 2).mean()


@case("mean")
def padded_attention(p: Any, b: Any) -> Any:
    mask = b["mask"].at[:, 0].set(1.0)
    return (_attention(p, b, any_jnp.where(mask[:, None, :] > 0, 0.0, -1e9)) ** 2).mean()


@case("mean")
def heads(p: Any, b: Any) -> Any:
    q, k = ((b["seq"] @ p[n]).reshape(-1, TIME, 2, WIDTH // 2).transpose(0, 2, 1, 3) for n in ("w", "w2"))
    weights = jax.nn.softmax(any_jnp.einsum("bhtd,bhsd->bhts", q, k))
    out = any_jnp.einsum("bhts,bhsd->bhtd", weights, k).transpose(0, 2, 1, 3).reshape(-1, TIME, WIDTH)
    return (out @ p["w"]).mean()


@case("mean")
def attention_of_jax(p: Any, b: Any) -> Any:
    q, k = ((b["seq"] @ p[n]).reshape(-1, TIME, 2, WIDTH // 2) for n in ("w", "w2"))
    return (any_jax.nn.dot_product_attention(q, k, k, is_causal=True) ** 2).mean()


@case("mean")
def rotary_positions(p: Any, b: Any) -> Any:
    angle = any_jnp.arange(TIME)[:, None] * 0.1
    x = b["seq"] @ p["w"]
    turned = any_jnp.concatenate([-x[..., WIDTH // 2 :], x[..., : WIDTH // 2]], -1)
    return ((x * any_jnp.cos(angle) + turned * any_jnp.sin(angle)) ** 2).mean()


@case("mean")
def convolution_over_time(p: Any, b: Any) -> Any:
    out = any_lax.conv_general_dilated(b["seq"], p["kernel"], (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))
    return (any_jnp.tanh(out) ** 2).mean()


@case("mean")
def image_network(p: Any, b: Any) -> Any:
    dims = ("NHWC", "HWIO", "NHWC")
    x = jax.nn.relu(any_lax.conv_general_dilated(b["image"], p["filter"], (1, 1), "SAME", dimension_numbers=dims))
    x = any_lax.reduce_window(x, -any_jnp.inf, any_lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = any_lax.reduce_window(x, 0.0, any_lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "VALID")
    return (x.mean((1, 2)).sum(-1) * b["keep"]).mean()


@case("mean")
def depthwise_convolution(p: Any, b: Any) -> Any:
    dims = ("NHWC", "HWIO", "NHWC")
    kernel = p["filter"][:, :, :1]
    out = any_lax.conv_general_dilated(
        b["image"], kernel, (1, 1), "SAME", dimension_numbers=dims, feature_group_count=2
    )
    return (out**2).mean()


@case("mean")
def resized_images(p: Any, b: Any) -> Any:
    small = any_jax.image.resize(b["image"], (b["image"].shape[0], 3, 3, 2), "bilinear")
    return (p["scale"] * small**2).mean()


@case("mean")
def recurrent(p: Any, b: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = any_jnp.tanh(h @ p["w"] + x)
        return h, h

    start = any_jnp.zeros((b["seq"].shape[0], WIDTH))
    _, out = any_lax.scan(step, start, any_jnp.swapaxes(b["seq"], 0, 1))
    return (any_jnp.swapaxes(out, 0, 1) ** 2).mean()


@case("mean")
def recurrent_per_example(p: Any, b: Any) -> Any:
    def one(seq: Any) -> Any:
        return any_lax.scan(lambda h, x: (any_jnp.tanh(h @ p["w"] + x), None), any_jnp.zeros(WIDTH), seq)[0]

    return (any_jax.vmap(one)(b["seq"]) ** 2).mean()


@case("mean")
def backward_in_time(p: Any, b: Any) -> Any:
    def step(value: Any, reward: Any) -> Any:
        value = reward + 0.9 * value
        return value, value

    gains = any_jnp.tanh(b["seq"] @ p["w"]).sum(-1).T
    _, returns = any_lax.scan(step, any_jnp.zeros(gains.shape[1]), gains, reverse=True)
    return returns.mean()


@case("mean")
def layers_in_a_loop(p: Any, b: Any) -> Any:
    h, _ = any_lax.scan(lambda h, w: (any_jnp.tanh(h @ w), None), b["x"], p["layers"])
    return ((h - b["y"]) ** 2).mean()


@case("mean")
def layers_with_outputs(p: Any, b: Any) -> Any:
    _, every = any_lax.scan(lambda h, w: (h := any_jnp.tanh(h @ w), h), b["x"], p["layers"])
    return (every * b["y"]).mean()


@case("mean")
def layers_again(p: Any, b: Any) -> Any:
    layer = any_jax.checkpoint(lambda h, w: (any_jnp.tanh(h @ w), None))
    return (any_lax.scan(layer, b["x"], p["layers"])[0] ** 2).mean()


@case("mean")
def counted_loop(p: Any, b: Any) -> Any:
    return (any_lax.fori_loop(0, 3, lambda _, h: any_jnp.tanh(h @ p["w"]), b["x"]) ** 2).mean()


@case("mean")
def two_rows_of_examples(p: Any, b: Any) -> Any:
    both = any_jnp.stack([b["x"], b["y"]])
    return (any_jnp.tanh(both @ p["w"])[0] * b["y"]).mean()


@case("mean")
def siamese(p: Any, b: Any) -> Any:
    both = any_jnp.concatenate([b["x"], b["y"]], 1).reshape(-1, 2, WIDTH)
    out = any_jnp.tanh(both @ p["w"])
    return ((out[:, 0] - out[:, 1]) ** 2).mean()


@case("mean")
def groups_of_two(p: Any, b: Any) -> Any:
    reward = (model(p, b) * b["y"]).sum(-1).reshape(-1, 2)
    return ((reward - reward.mean(1, keepdims=True)) ** 2).mean()


@case("mean", counts=(2,))
def groups_of_four(p: Any, b: Any) -> Any:
    out = model(p, b).reshape(-1, 4, WIDTH)
    return ((out - out.mean(1, keepdims=True)) ** 2 * b["y"].reshape(-1, 4, WIDTH)).mean()


assert ROWS == 8
