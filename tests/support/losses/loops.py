"""Losses that each need one rule for loops, branches, known numbers, or functions of statistics."""

from typing import Any

from support.losses.table import TIME, WIDTH, any_jax, any_jnp, any_lax, case, errors, model


def _total(p: Any, b: Any) -> Any:
    return (errors(p, b) * b["keep"]).sum()


@case("exact")
def times_an_inverse(p: Any, b: Any) -> Any:
    return _total(p, b) * (1.0 / b["keep"].sum())


@case("exact")
def times_an_inverse_of_a_bounded_count(p: Any, b: Any) -> Any:
    return _total(p, b) * (1.0 / any_jnp.maximum(b["keep"].sum(), 1.0))


@case("exact")
def over_a_rounded_quotient(p: Any, b: Any) -> Any:
    return _total(p, b) / any_jnp.floor(b["keep"].sum() / 2 + 1)


@case("exact")
def root_of_a_bounded_quotient(p: Any, b: Any) -> Any:
    return any_jnp.sqrt(any_jnp.maximum(_total(p, b) / any_jnp.maximum(b["keep"].sum(), 1.0), 1e-3))


@case("exact")
def either_of_two_quotients(p: Any, b: Any) -> Any:
    total, count = _total(p, b), b["keep"].sum()
    return any_lax.cond(p["scale"] > 0, lambda: total / count, lambda: total / (count + 1.0))


@case("exact")
def over_a_count_with_two_bounds(p: Any, b: Any) -> Any:
    return _total(p, b) / (any_jnp.maximum(b["keep"].sum(), 1.0) + 1e-3)


def _weight(p: Any, b: Any) -> Any:
    return any_jnp.exp(b["x"] @ p["b"]).sum()


@case("exact")
def over_a_bounded_quotient(p: Any, b: Any) -> Any:
    return _total(p, b) / any_jnp.maximum(model(p, b).sum() / _weight(p, b), 0.1)


@case("exact")
def root_of_a_quotient(p: Any, b: Any) -> Any:
    return any_jnp.sqrt(_total(p, b) / _weight(p, b))


@case("exact")
def either_a_quotient_or_a_root(p: Any, b: Any) -> Any:
    quotient, root = _total(p, b) / _weight(p, b), any_jnp.sqrt(_total(p, b))
    return any_lax.cond(p["scale"] > 0, lambda: root, lambda: quotient)


@case("mixes")
def branch_of_a_quotient_or_a_root(p: Any, b: Any) -> Any:
    quotient, root, mean = _total(p, b) / _weight(p, b), any_jnp.sqrt(_total(p, b)), errors(p, b).mean()
    either = any_lax.cond(p["scale"] > 0, lambda: root, lambda: quotient)
    return any_lax.cond(either > 0.5, lambda: mean, lambda: 2 * mean)


@case("exact")
def either_a_quotient_or_a_bound(p: Any, b: Any) -> Any:
    total, count = _total(p, b), b["keep"].sum()
    return any_lax.cond(p["scale"] > 0, lambda: total / count, lambda: any_jnp.maximum(total, 1.0))


@case("exact")
def either_a_total_or_a_quotient(p: Any, b: Any) -> Any:
    total, count = _total(p, b), b["keep"].sum()
    return any_lax.cond(p["scale"] > 0, lambda: total, lambda: total / count)


@case("sum")
def either_of_two_totals(p: Any, b: Any) -> Any:
    total, count = _total(p, b), b["keep"].sum()
    return any_lax.cond(p["scale"] > 0, lambda: total, lambda: total + 2 * count)


@case("mean")
def stacked_means(p: Any, b: Any) -> Any:
    return any_jnp.concatenate([errors(p, b).mean()[None], model(p, b).mean()[None]]).sum()


@case("mean")
def stacked_means_and_a_zero(p: Any, b: Any) -> Any:
    return any_jnp.stack([errors(p, b).mean(), any_jnp.zeros(()), model(p, b).mean()]).sum()


@case("exact")
def stacked_quotients(p: Any, b: Any) -> Any:
    count = b["keep"].sum()
    return any_jnp.stack([_total(p, b) / count, (model(p, b).sum(-1) * b["keep"]).sum() / count]).sum()


@case("exact")
def longest_of_stacked(p: Any, b: Any) -> Any:
    return any_jnp.stack([errors(p, b).mean(), model(p, b).mean()]).max()


@case("mean")
def picked_of_the_mean(p: Any, b: Any) -> Any:
    return model(p, b).mean(0)[1]


@case("mean")
def gathered_of_the_mean(p: Any, b: Any) -> Any:
    return model(p, b).mean(0)[any_jnp.array([2, 0])].sum()


@case("mean")
def window_of_the_mean(p: Any, b: Any) -> Any:
    return any_lax.dynamic_slice(model(p, b).mean(0), (1,), (2,)).sum()


@case("mean")
def padded_mean(p: Any, b: Any) -> Any:
    return any_jnp.pad(model(p, b).mean(0), (1, 2)).sum()


@case("exact")
def padded_mean_with_a_number(p: Any, b: Any) -> Any:
    return (any_jnp.pad(model(p, b).mean(0), (1, 2), constant_values=3.0) ** 2).sum()


@case("mean")
def cumulated_mean(p: Any, b: Any) -> Any:
    return any_jnp.cumsum(model(p, b).mean(0))[-1]


@case("exact")
def highest_of_the_mean_so_far(p: Any, b: Any) -> Any:
    return any_lax.cummax(model(p, b).mean(0)).sum()


@case("exact")
def mean_at_its_largest(p: Any, b: Any) -> Any:
    mean = model(p, b).mean(0)
    return mean[any_jnp.argmax(mean)[None]].sum()


@case("mixes")
def table_at_a_label_and_the_largest_mean(p: Any, b: Any) -> Any:
    column = any_jnp.argmax(model(p, b).mean(0))
    return any_lax.map(lambda i: any_lax.dynamic_slice(p["table"], (i, column), (1, 1)).sum(), b["label"]).mean()


@case("exact")
def sorted_mean(p: Any, b: Any) -> Any:
    return (any_jnp.sort(model(p, b).mean(0)) * any_jnp.arange(WIDTH)).sum()


@case("mean")
def mean_through_a_matrix(p: Any, b: Any) -> Any:
    return (b["x"].mean(0) @ any_jnp.ones((WIDTH, 3)) * 2.0).sum() * p["scale"]


@case("mean")
def mean_through_parameters(p: Any, b: Any) -> Any:
    return (b["x"].mean(0) @ p["w"]).sum()


@case("exact")
def mean_written_into_zeros(p: Any, b: Any) -> Any:
    return any_lax.dynamic_update_slice(any_jnp.zeros(WIDTH + 2), model(p, b).mean(0), (1,)).sum()


@case("mean")
def mean_added_at_an_index(p: Any, b: Any) -> Any:
    return any_jnp.zeros(WIDTH + 2).at[any_jnp.array([0, 3, 1, 4])].add(model(p, b).mean(0)).sum()


@case("exact")
def mean_set_at_an_index(p: Any, b: Any) -> Any:
    return (any_jnp.zeros(WIDTH + 2).at[any_jnp.array([0, 3, 1, 4])].set(model(p, b).mean(0)) ** 2).sum()


@case("mean")
def looked_up_in_a_loop(p: Any, b: Any) -> Any:
    def one(total: Any, row: Any) -> Any:
        x, label = row
        return total + (any_lax.dynamic_index_in_dim(p["table"], label, keepdims=False) * x).sum(), None

    return any_lax.scan(one, 0.0, (b["x"], b["label"]))[0] / b["x"].shape[0]


@case("mean")
def window_of_each_row_in_a_loop(p: Any, b: Any) -> Any:
    def one(_: Any, row: Any) -> Any:
        seq, label = row
        return None, (any_lax.dynamic_slice(seq, (label % TIME, 0), (1, WIDTH)) @ p["w"]).sum()

    return any_lax.scan(one, None, (b["seq"], b["label"]))[1].mean()


@case("unknown")
def any_negative(p: Any, b: Any) -> Any:
    x = model(p, b)
    return any_lax.cond((x < -0.9).any(), lambda: (x**2).mean(), lambda: abs(x).mean())


@case("mean")
def branch_of_the_rank(p: Any, b: Any) -> Any:
    x = model(p, b)
    return any_lax.cond(any_jnp.asarray(x.ndim == 2), lambda: (x**2).mean(), lambda: abs(x).mean())


@case("mixes")
def branch_of_the_number_of_examples(p: Any, b: Any) -> Any:
    x = model(p, b)
    return any_lax.cond(any_jnp.asarray(x.shape[0] > 6), lambda: (x**2).mean(), lambda: abs(x).mean())


@case("mean")
def switch_of_parameters(p: Any, b: Any) -> Any:
    x, which = model(p, b), any_jnp.argmax(p["b"][:3])
    return any_lax.switch(which, [lambda x: x**2, abs, lambda x: x * 2.0], x).mean()


@case("exact")
def loop_of_the_size(p: Any, b: Any) -> Any:
    x = any_lax.stop_gradient(b["x"])
    x = any_lax.while_loop(lambda s: s[0] < s[1].shape[0], lambda s: (s[0] + 1, s[1] * 0.9), (0, x))[1]
    return (x @ p["w"]).mean()


@case("exact")
def loop_until_all_are_small(p: Any, b: Any) -> Any:
    x = any_lax.stop_gradient(b["x"])
    x = any_lax.while_loop(lambda x: (abs(x) > 0.5).any(), lambda x: x * 0.7, x)
    return (x @ p["w"]).mean()


@case("exact")
def loop_of_each_example(p: Any, b: Any) -> Any:
    def one(x: Any) -> Any:
        x = any_lax.stop_gradient(x)
        return any_lax.while_loop(lambda x: abs(x).max() > 0.5, lambda x: x * 0.7, x)

    return (any_jax.vmap(one)(b["x"]) @ p["w"]).mean()


@case("mixes")
def paired_with_the_reverse_in_a_loop(p: Any, b: Any) -> Any:
    x = model(p, b)
    return any_lax.scan(lambda total, rows: (total + rows[0] @ rows[1], None), 0.0, (x, x[::-1]))[0]


@case("mean")
def sum_from_a_parameter_in_a_loop(p: Any, b: Any) -> Any:
    total = any_lax.scan(lambda total, x: (total + any_jnp.tanh(x @ p["w"]).sum(), None), 0.0, b["x"])[0]
    return total / b["x"].shape[0]


@case("unknown")
def sum_from_one_in_a_loop(p: Any, b: Any) -> Any:
    total = any_lax.scan(lambda total, x: (total + any_jnp.tanh(x @ p["w"]).sum(), None), 1.0, b["x"])[0]
    return total


@case("mixes")
def product_in_a_loop(p: Any, b: Any) -> Any:
    return any_lax.scan(lambda t, x: (t * (1 + 0.1 * any_jnp.tanh(x @ p["w"]).sum()), None), 1.0, b["x"])[0]


@case("unknown")
def every_second_in_a_loop(p: Any, b: Any) -> Any:
    def one(state: Any, x: Any) -> Any:
        total, sign = state
        return (total + sign * any_jnp.tanh(x @ p["w"]).sum(), -sign), None

    return any_lax.scan(one, (0.0, 1.0), b["x"])[0][0]


@case("mean")
def inverse_roots_and_powers(p: Any, b: Any) -> Any:
    n = any_jnp.sqrt(any_jnp.asarray(4.0)) * any_lax.rsqrt(any_jnp.asarray(4.0)) * any_jnp.asarray(2.0) ** -1
    return errors(p, b).mean() * n


@case("mean")
def divided_by_an_inverse_root_of_the_size(p: Any, b: Any) -> Any:
    root = any_lax.rsqrt(any_jnp.asarray(float(b["x"].shape[0])))
    return errors(p, b).sum() * root * root


@case("exact")
def weighted_by_cumulated_places(p: Any, b: Any) -> Any:
    places = any_lax.cumsum(any_jnp.ones(b["x"].shape[0]), reverse=True)
    return (errors(p, b) * places).mean()


@case("mean")
def weighted_by_places_in_time(p: Any, b: Any) -> Any:
    weight = any_lax.cumsum(any_jnp.ones(TIME), reverse=True) / any_lax.rev(any_jnp.arange(1.0, TIME + 1), (0,))
    return (any_jnp.tanh(b["seq"] @ p["w"]).sum(-1) * weight).mean()


@case("mean")
def weighted_by_the_largest_place(p: Any, b: Any) -> Any:
    return errors(p, b).mean() * any_jnp.arange(4.0).max() * any_jnp.squeeze(any_jnp.arange(3.0, 4.0), 0)


@case("exact")
def scaled_by_the_largest_number(p: Any, b: Any) -> Any:
    return errors(p, b).mean() * any_jnp.arange(float(b["x"].shape[0])).max()


@case("exact")
def ones_times_ones(p: Any, b: Any) -> Any:
    rows = b["x"].shape[0]
    return errors(p, b).sum() / (any_jnp.ones((1, rows)) @ any_jnp.ones((rows, 1)))[0, 0]


@case("mean")
def over_a_product_of_ones(p: Any, b: Any) -> Any:
    ones = any_jnp.ones(b["x"].shape[0])
    return errors(p, b).sum() / (ones @ ones)


@case("unknown")
def all_are_positive(p: Any, b: Any) -> Any:
    x = model(p, b)
    return (x**2).mean() * any_jnp.where((x > -2).all(), 1.0, 0.5)


@case("mixes")
def centered_in_the_last_turn(p: Any, b: Any) -> Any:
    def one(s: Any, _: Any) -> Any:
        i, x = s
        return (i + 1, any_lax.cond(i == 3, lambda x: x - x.mean(0), lambda x: any_jnp.tanh(x @ p["w"]), x)), None

    return (any_lax.scan(one, (0, b["x"]), None, length=4)[0][1] * b["y"]).mean()


@case("mixes")
def centered_in_one_turn(p: Any, b: Any) -> Any:
    x = model(p, b)

    def one(i: Any, _: Any) -> Any:
        return i + 1, any_lax.cond(i == 2, lambda: x - x.mean(0), lambda: x)

    return (any_lax.scan(one, 0, None, length=4)[1] * b["y"]).mean()
