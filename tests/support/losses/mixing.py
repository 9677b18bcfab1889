"""Losses in which the examples of a batch meet: over microbatches they are another loss."""

from typing import Any

import jax

from support.losses.table import CLASSES, WIDTH, any_jax, any_jnp, any_lax, case, errors, logits, model

_random: Any = jax.random


def _normalized(x: Any) -> Any:
    return (x - x.mean(0)) / any_jnp.sqrt(x.var(0) + 1e-5)


@case("mixes")
def batch_norm(p: Any, b: Any) -> Any:
    return ((_normalized(b["x"] @ p["w"]) - b["y"]) ** 2).mean()


@case("mixes")
def two_batch_norms(p: Any, b: Any) -> Any:
    x = jax.nn.relu(_normalized(b["x"] @ p["w"]))
    return ((_normalized(x @ p["w2"]) - b["y"]) ** 2).mean()


@case("mixes")
def batch_norm_of_images(p: Any, b: Any) -> Any:
    dims = ("NHWC", "HWIO", "NHWC")
    x = any_lax.conv_general_dilated(b["image"], p["filter"], (1, 1), "SAME", dimension_numbers=dims)
    x = (x - x.mean((0, 1, 2))) / any_jnp.sqrt(x.var((0, 1, 2)) + 1e-5)
    return (jax.nn.relu(x).mean((1, 2, 3)) * b["keep"]).mean()


@case("mixes")
def batch_norm_in_a_loop(p: Any, b: Any) -> Any:
    h, _ = any_lax.scan(lambda h, w: (any_jnp.tanh(_normalized(h @ w)), None), b["x"], p["layers"])
    return ((h - b["y"]) ** 2).mean()


@case("mixes")
def batch_norm_computed_again(p: Any, b: Any) -> Any:
    layer = any_jax.checkpoint(lambda h, w: any_jnp.tanh(_normalized(h @ w)))
    return ((layer(b["x"], p["w"]) - b["y"]) ** 2).mean()


@case("mixes")
def centered(p: Any, b: Any) -> Any:
    x = model(p, b)
    return ((x - x.mean(0)) * b["y"]).mean()


@case("mixes")
def whitened(p: Any, b: Any) -> Any:
    x = model(p, b)
    root = any_jnp.linalg.cholesky(x.T @ x / x.shape[0] + any_jnp.eye(WIDTH))
    return (x @ any_jnp.linalg.inv(root) * b["y"]).mean()


def _contrast(a: Any, b: Any) -> Any:
    return -any_jnp.diag(jax.nn.log_softmax(a @ b.T)).mean()


@case("mixes")
def contrastive(p: Any, b: Any) -> Any:
    return _contrast(model(p, b), b["y"])


@case("mixes")
def contrastive_both_ways(p: Any, b: Any) -> Any:
    one, other = model(p, b), any_jnp.tanh(b["y"] @ p["w2"])
    return _contrast(one, other) + _contrast(other, one)


@case("mixes")
def contrastive_of_labels(p: Any, b: Any) -> Any:
    scores = model(p, b) @ b["y"].T
    labels = any_jnp.arange(scores.shape[0])
    return -any_jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], 1).mean()


@case("mixes")
def hardest_negative(p: Any, b: Any) -> Any:
    x = model(p, b)
    distance = ((x[:, None] - x[None]) ** 2).sum(-1)
    same = b["label"][:, None] == b["label"][None]
    return any_jnp.min(any_jnp.where(same, 1e3, distance), 1).mean()


@case("mixes")
def all_pairs(p: Any, b: Any) -> Any:
    x = model(p, b).sum(-1)
    return jax.nn.softplus(-(x[:, None] - x[None]) * (b["reward"][:, None] - b["reward"][None])).mean()


@case("mixes")
def gaussian_process(p: Any, b: Any) -> Any:
    x = model(p, b)
    kernel = any_jnp.exp(-((x[:, None] - x[None]) ** 2).sum(-1)) + 0.1 * any_jnp.eye(x.shape[0])
    lower = any_jnp.linalg.cholesky(kernel)
    solved = any_jax.scipy.linalg.solve_triangular(lower, b["reward"], lower=True)
    return 0.5 * (solved**2).sum() + any_jnp.log(any_jnp.diag(lower)).sum()


@case("mixes")
def softmax_over_the_batch(p: Any, b: Any) -> Any:
    return (jax.nn.softmax(model(p, b).sum(-1), axis=0) * b["reward"]).sum()


@case("mixes")
def attention_between_examples(p: Any, b: Any) -> Any:
    x = b["x"] @ p["w"]
    return ((jax.nn.softmax(x @ x.T) @ x - b["y"]) ** 2).mean()


@case("mixes")
def worst_examples(p: Any, b: Any) -> Any:
    return any_lax.top_k(errors(p, b), errors(p, b).shape[0] // 4)[0].mean()


@case("mixes")
def largest_of_each_output(p: Any, b: Any) -> Any:
    return any_lax.top_k(model(p, b).T, 1)[0].sum()


@case("mixes")
def singular_values(p: Any, b: Any) -> Any:
    return any_jnp.linalg.svd(model(p, b), compute_uv=False).sum()


@case("mixes", counts=(2,))
def sorted_with_examples_in_another_order(p: Any, b: Any) -> Any:
    x, other = model(p, b), b["y"].reshape(2, -1, WIDTH).swapaxes(0, 1).reshape(-1, WIDTH)
    return (any_lax.sort((x, other), dimension=1, num_keys=1)[1] * x).mean()


def _classes_and_numbers(p: Any, b: Any) -> Any:
    numbers = any_jnp.arange(b["x"].shape[0])
    return any_jnp.concatenate([logits(p, b).argmax(-1)[:, None], numbers[:, None]], 1)


@case("mixes")
def numbers_beside_predictions(p: Any, b: Any) -> Any:
    return (errors(p, b) * (2 * _classes_and_numbers(p, b)).sum(1)).mean()


@case("mixes")
def numbers_beside_predictions_in_a_loop(p: Any, b: Any) -> Any:
    return (any_lax.map(lambda row: row.sum(), _classes_and_numbers(p, b)) * errors(p, b)).mean()


def _long_table(p: Any) -> Any:
    return any_jnp.concatenate([p["table"]] * 4)


@case("mixes")
def table_at_numbers_and_labels(p: Any, b: Any) -> Any:
    numbers = any_jnp.arange(b["x"].shape[0])
    return (_long_table(p)[numbers, b["label"]] * errors(p, b)).mean()


@case("mixes")
def added_into_a_table_at_numbers_and_labels(p: Any, b: Any) -> Any:
    numbers = any_jnp.arange(b["x"].shape[0])
    return _long_table(p).at[numbers, b["label"]].add(errors(p, b)).sum()


@case("mixes")
def doubled_in_large_batches(p: Any, b: Any) -> Any:
    x = model(p, b)
    return (any_jnp.where(any_jnp.asarray(x.shape[0] > 6), x, 2 * x) * b["y"]).mean()


@case("mixes")
def in_order_of_loss(p: Any, b: Any) -> Any:
    ordered = any_jnp.sort(errors(p, b))
    return (ordered * any_jnp.linspace(0, 1, ordered.shape[0])).mean()


@case("mixes")
def median(p: Any, b: Any) -> Any:
    return any_jnp.median(errors(p, b))


@case("mixes")
def cumulated_over_the_batch(p: Any, b: Any) -> Any:
    return (any_jnp.cumsum(model(p, b), 0) * b["y"]).mean()


@case("mixes")
def expert_capacity(p: Any, b: Any) -> Any:
    gates = jax.nn.softmax(logits(p, b))
    picked = jax.nn.one_hot(gates.argmax(-1), CLASSES)
    place = any_jnp.cumsum(picked, 0) * picked
    kept = picked * (place <= 1)
    return ((kept * gates).sum(-1) * errors(p, b)).mean()


@case("mixes")
def rolled_outputs(p: Any, b: Any) -> Any:
    return (any_jnp.roll(model(p, b), 1, 0) * b["y"]).mean()


@case("mixes")
def turned_outputs(p: Any, b: Any) -> Any:
    return (model(p, b)[::-1] * b["y"]).mean()


@case("mixes")
def shuffled_negatives(p: Any, b: Any) -> Any:
    order = _random.permutation(_random.key(0), b["x"].shape[0])
    x = model(p, b)
    return ((x - x[order]) ** 2 * b["y"]).mean()


@case("mixes")
def first_example(p: Any, b: Any) -> Any:
    return errors(p, b)[0]


@case("mixes")
def every_other_example(p: Any, b: Any) -> Any:
    x = model(p, b)
    return (x[::2] * x[1::2]).mean() + (x[: x.shape[0] // 2] * x[x.shape[0] // 2 :]).mean()


@case("mixes")
def picked_by_data(p: Any, b: Any) -> Any:
    x = model(p, b)
    return (x[b["label"] % 2] * b["y"]).mean()


@case("mixes")
def branch_of_the_mean(p: Any, b: Any) -> Any:
    loss = errors(p, b).mean()
    return any_lax.cond(loss > 0.8, lambda: loss * 2, lambda: (errors(p, b) ** 2).mean())


@case("mixes")
def loop_of_the_mean(p: Any, b: Any) -> Any:
    def go(state: Any) -> Any:
        return state[0] * 1.5, state[1] + 1

    size = any_lax.stop_gradient(errors(p, b).mean())
    _, steps = any_lax.while_loop(lambda s: s[0] < 3.0, go, (size, 0.0))
    return errors(p, b).mean() * steps


@case("mixes")
def carried_from_row_to_row(p: Any, b: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = any_jnp.tanh(x @ p["w"] + 0.5 * h)
        return h, h

    _, out = any_lax.scan(step, any_jnp.zeros(WIDTH), b["x"])
    return (out * b["y"]).mean()


@case("unknown")
def counted_rows(p: Any, b: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        total, number = state
        return (total + number * (any_jnp.tanh(x @ p["w"]) ** 2).sum(), number + 1.0), None

    return any_lax.scan(step, (0.0, 1.0), b["x"])[0][0]


@case("mixes")
def convolved_over_the_batch(p: Any, b: Any) -> Any:
    out = any_lax.conv_general_dilated(
        model(p, b)[None], p["kernel"], (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
    )
    return (out[0] * b["y"]).mean()


@case("mixes")
def fourier_over_the_batch(p: Any, b: Any) -> Any:
    return (abs(any_jnp.fft.fft(model(p, b), axis=0)) * abs(b["y"])).mean()


@case("mixes", counts=(2,))
def halves_of_the_batch(p: Any, b: Any) -> Any:
    x = model(p, b).reshape(2, -1, WIDTH)
    return ((x - x.mean(1, keepdims=True)) ** 2 * b["y"].reshape(2, -1, WIDTH)).mean()


@case("mixes")
def normalized_loss(p: Any, b: Any) -> Any:
    x = errors(p, b)
    return (x / any_lax.stop_gradient(x.mean()) * b["weight"]).mean()


@case("mixes")
def largest_example(p: Any, b: Any) -> Any:
    x = errors(p, b)
    return (x / any_lax.stop_gradient(x.max())).mean()


@case("mixes")
def assignment_over_the_batch(p: Any, b: Any) -> Any:
    scores = any_jnp.exp(logits(p, b))
    for _ in range(2):
        scores = scores / scores.sum(0, keepdims=True)
        scores = scores / scores.sum(1, keepdims=True)
    return -(any_lax.stop_gradient(scores) * jax.nn.log_softmax(logits(p, b))).sum(-1).mean()


@any_jax.custom_vjp
def _normalized_gradient(x: Any) -> Any:
    return x


def _back(_: None, g: Any) -> Any:
    return (g / any_jnp.sqrt((g**2).mean(0) + 1e-6),)


_normalized_gradient.defvjp(lambda x: (x, None), _back)


@case("mixes")
def normalized_in_the_backward_pass(p: Any, b: Any) -> Any:
    return ((_normalized_gradient(b["x"] @ p["w"]) - b["y"]) ** 2).mean()
