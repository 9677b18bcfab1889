"""Losses that are neither a mean nor a sum over examples, but can be computed exactly over microbatches."""

import functools
from typing import Any

import jax

from support.losses.table import (
    CLASSES,
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

_random: Any = jax.random


@case("exact")
def masked_tokens(p: Any, b: Any) -> Any:
    return (token_losses(p, b) * b["mask"]).sum() / b["mask"].sum()


@case("exact")
def masked_examples(p: Any, b: Any) -> Any:
    return (errors(p, b) * b["keep"]).sum() / b["keep"].sum()


@case("exact")
def masked_with_a_bound(p: Any, b: Any) -> Any:
    return (errors(p, b) * b["keep"]).sum() / any_jnp.maximum(b["keep"].sum(), 1.0)


@case("exact")
def masked_with_an_epsilon(p: Any, b: Any) -> Any:
    return (errors(p, b) * b["keep"]).sum() / (b["keep"].sum() + 1e-3)


@case("exact")
def masked_with_a_guard(p: Any, b: Any) -> Any:
    count = b["keep"].sum()
    return any_jnp.where(count > 0, (errors(p, b) * b["keep"]).sum() / any_jnp.where(count > 0, count, 1.0), 0.0)


@case("exact")
def mean_where(p: Any, b: Any) -> Any:
    return any_jnp.mean(errors(p, b), where=b["keep"] > 0)


@case("exact")
def weighted_classes(p: Any, b: Any) -> Any:
    weight = any_jnp.array([1.0, 2.0, 0.5, 1.5, 3.0])[b["label"]]
    picked = any_jnp.take_along_axis(jax.nn.log_softmax(logits(p, b)), b["label"][:, None], 1)[:, 0]
    return -(picked * weight).sum() / weight.sum()


@case("exact")
def weights_of_the_model(p: Any, b: Any) -> Any:
    weight = jax.nn.sigmoid(b["x"] @ p["b"])
    return (errors(p, b) * weight).sum() / weight.sum()


@case("exact")
def two_quotients(p: Any, b: Any) -> Any:
    one = (errors(p, b) * b["keep"]).sum() / b["keep"].sum()
    return one + (token_losses(p, b) * b["mask"]).sum() / b["mask"].sum()


@case("exact")
def quotient_and_mean(p: Any, b: Any) -> Any:
    return (errors(p, b) * b["keep"]).sum() / b["keep"].sum() + 0.1 * any_jnp.square(logits(p, b)).mean()


@case("exact")
def root_of_the_mean(p: Any, b: Any) -> Any:
    return any_jnp.sqrt(errors(p, b).mean())


@case("exact")
def log_of_the_mean(p: Any, b: Any) -> Any:
    return any_jnp.log(any_jnp.exp(errors(p, b)).mean())


@case("exact")
def perplexity(p: Any, b: Any) -> Any:
    return any_jnp.exp(token_losses(p, b).mean())


@case("exact")
def variance_of_outputs(p: Any, b: Any) -> Any:
    x = model(p, b)
    return ((x**2).mean(0) - x.mean(0) ** 2).sum()


@case("exact")
def covariance(p: Any, b: Any) -> Any:
    x = model(p, b)
    return ((x.T @ x / x.shape[0]) ** 2).sum()


@case("exact")
def dice(p: Any, b: Any) -> Any:
    chance = jax.nn.sigmoid(logits(p, b)[:, 0])
    return 1 - 2 * (chance * b["keep"]).sum() / (chance.sum() + b["keep"].sum() + 1.0)


@case("exact")
def distance_of_means(p: Any, b: Any) -> Any:
    return errors(p, b).mean() + ((model(p, b).mean(0) - any_jnp.tanh(b["y"]).mean(0)) ** 2).sum()


@case("exact")
def balanced_experts(p: Any, b: Any) -> Any:
    gates = jax.nn.softmax(logits(p, b))
    load = jax.nn.one_hot(gates.argmax(-1), CLASSES).mean(0)
    return errors(p, b).mean() + CLASSES * (load * gates.mean(0)).sum()


@case("exact")
def scaled_by_the_root(p: Any, b: Any) -> Any:
    return errors(p, b).sum() / b["x"].shape[0] ** 0.5


@case("exact")
def mean_and_sum(p: Any, b: Any) -> Any:
    return errors(p, b).mean() + 0.1 * any_jnp.square(logits(p, b)).sum()


@case("exact")
def sum_and_penalty(p: Any, b: Any) -> Any:
    return errors(p, b).sum() + 0.1 * (p["w"] ** 2).sum()


@case("exact")
def cosine_of_all(p: Any, b: Any) -> Any:
    x = model(p, b)
    return (x * b["y"]).sum() / any_jnp.sqrt((x**2).sum() * (b["y"] ** 2).sum())


@case("exact")
def clipped_by_the_total(p: Any, b: Any) -> Any:
    return any_jnp.minimum(errors(p, b).mean(), 0.5)


@case("exact")
def dropout(p: Any, b: Any) -> Any:
    x = model(p, b)
    kept = _random.bernoulli(_random.key(3), 0.5, x.shape)
    return (any_jnp.where(kept, x / 0.5, 0) * b["y"]).mean()


@case("exact")
def dropout_of_old_keys(p: Any, b: Any) -> Any:
    x = model(p, b)
    return (x * _random.bernoulli(_random.PRNGKey(3), 0.5, x.shape) * b["y"]).mean()


@case("exact")
def two_dropouts(p: Any, b: Any) -> Any:
    one, other = _random.split(_random.key(3))
    x = model(p, b) * _random.bernoulli(one, 0.5, b["x"].shape)
    x = any_jnp.tanh(x @ p["w2"]) * _random.bernoulli(other, 0.8, b["x"].shape)
    return ((x - b["y"]) ** 2).mean()


@case("exact")
def noisy_inputs(p: Any, b: Any) -> Any:
    x = b["x"] + 0.1 * _random.normal(_random.key(5), b["x"].shape)
    return ((any_jnp.tanh(x @ p["w"]) - b["y"]) ** 2).mean()


@case("exact")
def auto_encoder(p: Any, b: Any) -> Any:
    mean, log_variance = any_jnp.split(b["x"] @ p["w"], 2, -1)
    noise = _random.normal(_random.key(1), mean.shape)
    hidden = mean + any_jnp.exp(log_variance / 2) * noise
    return ((any_jnp.concatenate([hidden, hidden], 1) @ p["w2"] - b["x"]) ** 2).mean() + (mean**2).mean()


@case("exact")
def diffusion(p: Any, b: Any) -> Any:
    for_time, for_noise = _random.split(_random.key(2))
    t = _random.uniform(for_time, (b["x"].shape[0], 1))
    noise = _random.normal(for_noise, b["x"].shape)
    return ((any_jnp.tanh((t * b["x"] + (1 - t) * noise) @ p["w"]) - noise) ** 2).mean()


@case("exact")
def keys_of_one_split(p: Any, b: Any) -> Any:
    keys = _random.split(_random.key(0), b["x"].shape[0])
    noise = any_jax.vmap(lambda key: _random.normal(key, b["x"].shape[1:]))(keys)
    return (any_jnp.tanh((b["x"] + noise) @ p["w"]) * b["y"]).mean()


@case("exact")
def chosen_classes(p: Any, b: Any) -> Any:
    noise = _random.gumbel(_random.key(4), (b["x"].shape[0], CLASSES))
    return (jax.nn.softmax(logits(p, b) + noise) @ p["table"] * b["y"]).mean()


@case("exact")
def dropout_in_each_layer(p: Any, b: Any) -> Any:
    def layer(h: Any, given: Any) -> Any:
        w, key = given
        return any_jnp.tanh(h @ w) * _random.bernoulli(key, 0.5, h.shape), None

    keys = _random.split(_random.key(7), 3)
    return ((any_lax.scan(layer, b["x"], (p["layers"], keys))[0] - b["y"]) ** 2).mean()


@case("exact")
def dropout_computed_again(p: Any, b: Any) -> Any:
    layer = any_jax.checkpoint(lambda h, w: any_jnp.tanh(h @ w) * _random.bernoulli(_random.key(1), 0.5, h.shape))
    return ((layer(b["x"], p["w"]) - b["y"]) ** 2).mean()


@case("exact")
def masked_and_dropped(p: Any, b: Any) -> Any:
    kept = _random.bernoulli(_random.key(3), 0.5, b["x"].shape)
    error = ((model(p, b) * kept - b["y"]) ** 2).mean(-1)
    return (error * b["keep"]).sum() / b["keep"].sum()


@case("exact")
def normalized_advantages(p: Any, b: Any) -> Any:
    advantage = (b["reward"] - b["reward"].mean()) / (b["reward"].std() + 1e-6)
    return -(model(p, b).sum(-1) * advantage).mean()


@case("exact")
def normalized_inputs(p: Any, b: Any) -> Any:
    x = (b["x"] - b["x"].mean(0)) / (b["x"].std(0) + 1e-3)
    return ((any_jnp.tanh(x @ p["w"]) - b["y"]) ** 2).mean()


@case("exact")
def mixed_inputs(p: Any, b: Any) -> Any:
    x = 0.7 * b["x"] + 0.3 * any_jnp.roll(b["x"], 1, 0)
    return ((any_jnp.tanh(x @ p["w"]) - b["y"]) ** 2).mean()


@case("exact")
def ranked_rewards(p: Any, b: Any) -> Any:
    rank = any_jnp.argsort(any_jnp.argsort(b["reward"])) / b["reward"].shape[0]
    return (model(p, b).sum(-1) * rank).mean()


@case("exact")
def numbered_examples(p: Any, b: Any) -> Any:
    return (errors(p, b) * any_jnp.arange(b["x"].shape[0])).mean()


@case("exact")
def product_of_sums(p: Any, b: Any) -> Any:
    x = errors(p, b)
    return any_jnp.einsum("b,c->", x, x**2 * any_jnp.arange(1.0, x.shape[0] + 1))


@case("exact")
def inputs_carried_beside_layers(p: Any, b: Any) -> Any:
    def layer(state: Any, w: Any) -> Any:
        return (any_jnp.tanh(state[0] @ w), state[1] * 0.9), None

    (h, target), _ = any_lax.scan(layer, (b["x"], b["y"]), p["layers"])
    return (h * (target - target.mean(0))).mean()


@case("exact")
def dropout_in_layers_computed_again(p: Any, b: Any) -> Any:
    def layer(h: Any, given: Any) -> Any:
        w, key = given
        dropped = any_jax.checkpoint(lambda h, w: any_jnp.tanh(h @ w) * _random.bernoulli(key, 0.5, h.shape))
        return dropped(h, w * 2.0), None

    keys = _random.split(_random.key(7), 3)
    return ((any_lax.scan(layer, b["x"], (p["layers"], keys))[0] - b["y"]) ** 2).mean()


@functools.cache
def _key_from_outside() -> Any:
    with any_jax.ensure_compile_time_eval():
        return _random.key(3)


@case("exact")
def dropout_of_a_key_from_outside(p: Any, b: Any) -> Any:
    return (model(p, b) * _random.bernoulli(_key_from_outside(), 0.5, b["x"].shape) * b["y"]).mean()


@case("exact")
def parameters_in_place_of_the_first_examples(p: Any, b: Any) -> Any:
    is_first = any_jnp.arange(b["x"].shape[0]) < 2
    return (any_jnp.where(is_first[:, None], model(p, b), p["b"]) * b["y"]).mean()


@case("exact")
def numbers_beside_examples(p: Any, b: Any) -> Any:
    numbers = any_jnp.arange(float(b["x"].shape[0]))
    return (any_jnp.concatenate([model(p, b), numbers[:, None]], 1) @ any_jnp.ones((WIDTH + 1, 1)) * p["scale"]).mean()


@case("exact")
def numbers_stacked_beside_examples(p: Any, b: Any) -> Any:
    return (any_jnp.stack([errors(p, b), any_jnp.arange(float(b["x"].shape[0]))], 1) * p["scale"]).mean()


@case("exact")
def weighted_by_whole_thirds(p: Any, b: Any) -> Any:
    return (errors(p, b) * any_lax.div(b["label"] * b["x"].shape[0], 3)).mean()


@case("exact")
def over_one_less_than_the_count(p: Any, b: Any) -> Any:
    return errors(p, b).sum() / (any_jnp.ones(b["x"].shape[0]).sum() - 1)


def _with_numbers(p: Any, b: Any) -> tuple[Any, Any]:
    """Returns rows of features for each example, and one index of a row: its number, then a label."""
    rows, numbers = b["x"].shape[0], any_jnp.arange(b["x"].shape[0])
    features = any_jnp.concatenate([model(p, b), b["x"], b["y"], b["y"]], 1).reshape(rows, -1, 2)
    return features, any_jnp.concatenate([numbers[:, None], b["label"][:, None] % 2], 1)


@case("exact")
def feature_at_the_own_number(p: Any, b: Any) -> Any:
    return (any_jax.vmap(lambda row, at: row[at[0], at[1]])(*_with_numbers(p, b)) * errors(p, b)).mean()


@case("exact")
def feature_replaced_at_the_own_number(p: Any, b: Any) -> Any:
    replaced = any_jax.vmap(lambda row, at: row.at[at[0], at[1]].set(0.0))(*_with_numbers(p, b))
    return (replaced**2).mean()
