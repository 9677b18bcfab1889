"""Losses that each need one rule for indices, shapes or products."""

from typing import Any

import jax

from support.losses.table import CLASSES, WIDTH, any_jax, any_jnp, any_lax, case, errors, logits, model

_random: Any = jax.random


@case("mean")
def expanded_by_a_rule(p: Any, b: Any) -> Any:
    return (any_lax.expand_dims(errors(p, b), (0, 2)) ** 2).mean()


@case("mean")
def unstacked_features(p: Any, b: Any) -> Any:
    first, second, *_ = any_jnp.unstack(model(p, b), axis=1)
    return (first * second).mean()


@case("mean")
def split_features(p: Any, b: Any) -> Any:
    first, second = any_jnp.split(model(p, b), 2, axis=1)
    return (first * second).mean()


@case("mean")
def first_of_each_pair(p: Any, b: Any) -> Any:
    return (model(p, b).reshape(-1, 2, WIDTH)[:, 0] ** 2).mean()


@case("unknown")
def ones_below_the_batch(p: Any, b: Any) -> Any:
    return any_jnp.concatenate([model(p, b), any_jnp.ones((2, WIDTH))]).sum()


@case("mixes")
def split_rows(p: Any, b: Any) -> Any:
    x = model(p, b)
    first, second = any_lax.split(x, (x.shape[0] // 2, x.shape[0] // 2), axis=0)
    return (first * second).mean()


@case("unknown")
def unstacked_rows(p: Any, b: Any) -> Any:
    return any_jnp.unstack(model(p, b), axis=0)[0].mean()


@case("unknown")
def padded_rows(p: Any, b: Any) -> Any:
    return (any_jnp.pad(model(p, b), ((1, 0), (0, 0)))[:-1] * b["y"]).mean()


@case("mean")
def padded_by_a_parameter(p: Any, b: Any) -> Any:
    return (any_lax.pad(model(p, b), p["scale"], ((0, 0, 0), (1, 1, 0))) ** 2).mean()


@case("mean")
def padded_by_a_number_of_each_example(p: Any, b: Any) -> Any:
    return (any_jax.vmap(lambda x, r: any_lax.pad(x, r, ((1, 0, 0),)))(model(p, b), b["reward"]) ** 2).mean()


@case("mean")
def bits_of_each_number(p: Any, b: Any) -> Any:
    bits = any_lax.bitcast_convert_type(b["x"], any_jnp.int32) & 1
    return (model(p, b) * bits).mean()


@case("mean")
def halves_of_each_number(p: Any, b: Any) -> Any:
    bits = any_lax.bitcast_convert_type(b["x"], any_jnp.int16)
    return (model(p, b)[..., None] * (bits % 3)).mean()


@case("mean")
def written_into_each_example(p: Any, b: Any) -> Any:
    return (any_lax.dynamic_update_slice(b["seq"], b["x"][:, None] @ p["w"], (0, 2, 0)) ** 2).mean()


@case("mean")
def parameters_written_into_each_example(p: Any, b: Any) -> Any:
    x = b["x"] @ p["w"]
    return (any_lax.dynamic_update_slice(x, any_jnp.broadcast_to(p["b"][:2], (x.shape[0], 2)), (0, 1)) ** 2).mean()


@case("mean")
def each_example_written_into_zeros(p: Any, b: Any) -> Any:
    x = model(p, b)
    return (any_lax.dynamic_update_slice(any_jnp.zeros((x.shape[0], WIDTH + 2)), x, (0, 1)) ** 2).mean()


@case("mixes")
def first_rows_overwritten(p: Any, b: Any) -> Any:
    x = model(p, b)
    return (any_lax.dynamic_update_slice(x, x[:1] * 2.0, (0, 0)) * b["y"]).mean()


@case("mean")
def slice_at_a_place_of_the_parameters(p: Any, b: Any) -> Any:
    start = any_jnp.argmax(p["b"][:2])
    return (any_lax.dynamic_slice(b["seq"], (0, start, 0), (b["seq"].shape[0], 2, WIDTH)) @ p["w"]).mean()


@case("mixes")
def slice_of_the_batch(p: Any, b: Any) -> Any:
    x = model(p, b)
    return any_lax.dynamic_slice(x, (1, 0), (x.shape[0] // 2, WIDTH)).mean()


@case("mean")
def multiplied_at_an_index(p: Any, b: Any) -> Any:
    return (model(p, b).at[:, 1].multiply(3.0) ** 2).mean()


@case("mean")
def largest_at_an_index(p: Any, b: Any) -> Any:
    return (model(p, b).at[:, any_jnp.array([0, 2])].max(b["y"][:, :2]) ** 2).mean()


@case("mean")
def set_to_parameters_at_an_index(p: Any, b: Any) -> Any:
    return (model(p, b).at[:, 1].set(p["scale"]) ** 2).mean()


@case("mean")
def each_example_set_at_its_label(p: Any, b: Any) -> Any:
    rows = any_jnp.arange(b["x"].shape[0])
    return (any_jnp.zeros((b["x"].shape[0], CLASSES)).at[rows, b["label"]].set(errors(p, b)) ** 2).mean()


@case("mixes")
def last_of_each_class(p: Any, b: Any) -> Any:
    return (any_jnp.zeros(CLASSES).at[b["label"]].set(errors(p, b)) ** 2).sum()


@case("mixes")
def largest_of_each_class(p: Any, b: Any) -> Any:
    return (any_jnp.zeros(CLASSES).at[b["label"]].max(errors(p, b)) ** 2).sum()


@case("mixes")
def added_to_other_rows(p: Any, b: Any) -> Any:
    x = model(p, b)
    return (x.at[b["label"] % x.shape[0]].add(b["y"]) ** 2).mean()


@case("sum")
def summed_by_class_onto_parameters(p: Any, b: Any) -> Any:
    return any_jnp.zeros(CLASSES).at[b["label"]].add(errors(p, b)).sum()


@case("unknown")
def squares_of_sums_by_class(p: Any, b: Any) -> Any:
    return (p["table"][:, 0].at[b["label"]].add(errors(p, b)) ** 2).sum()


@case("mixes")
def first_row_set(p: Any, b: Any) -> Any:
    return (model(p, b).at[0].set(0.0) * b["y"]).mean()


@case("exact")
def keys_of_several_examples(p: Any, b: Any) -> Any:
    keys = _random.split(_random.key(0), b["x"].shape[0])
    mixed = any_jax.vmap(_random.fold_in)(keys, b["label"][::-1])
    return (any_jax.vmap(lambda k, x: _random.normal(k, x.shape) * x)(mixed, model(p, b))).mean()


@case("mean")
def convolution_by_groups(p: Any, b: Any) -> Any:
    kernel = p["filter"][:, :, :1]
    numbers = ("NHWC", "HWIO", "NHWC")
    x = any_lax.conv_general_dilated(
        b["image"], kernel, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=2
    )
    return (x**2).mean()


@case("unknown")
def convolution_by_batch_groups(p: Any, b: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    x = any_lax.conv_general_dilated(
        b["image"], p["filter"], (1, 1), "SAME", dimension_numbers=numbers, batch_group_count=2
    )
    return (x**2).mean()


@case("mixes")
def largest_of_each_feature(p: Any, b: Any) -> Any:
    return model(p, b).max(0).sum()


@case("mean")
def mean_of_parts(p: Any, b: Any) -> Any:
    x = model(p, b).reshape(-1, 2, WIDTH)
    return (x.sum(0) * 2.0 + 0.0).sum() / b["x"].shape[0]


@case("mixes")
def square_of_parts(p: Any, b: Any) -> Any:
    return (model(p, b).reshape(-1, 2, WIDTH).sum(0) ** 2).sum()


@case("mixes")
def largest_of_parts(p: Any, b: Any) -> Any:
    return model(p, b).reshape(-1, 2, WIDTH).max(0).sum()


@case("mean")
def cosine_with_a_parameter(p: Any, b: Any) -> Any:
    x = model(p, b)
    return (any_jnp.einsum("bi,i->b", x, p["b"]) / (any_jnp.linalg.norm(x, axis=-1) + 1e-3)).mean()


@case("mean")
def logits_of_sorted_classes(p: Any, b: Any) -> Any:
    order = any_jnp.argsort(logits(p, b), axis=-1)
    return (any_jnp.take_along_axis(logits(p, b), order, -1) * any_jnp.arange(CLASSES)).mean()
