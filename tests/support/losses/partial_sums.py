"""Losses that add up a part of the batch first: example `i` and the one half a batch later, which two microbatches
separate. Only what is linear in such a sum is the same over microbatches.
"""

from typing import Any

from support.losses.table import any_jnp, any_lax, case, errors


def _halves(p: Any, b: Any) -> Any:
    return errors(p, b).reshape(2, -1).sum(0)


@case("mean", counts=(2,))
def partial_sums_over_a_parameter(p: Any, b: Any) -> Any:
    return (_halves(p, b) / (1 + p["scale"] ** 2)).mean()


@case("mixes", counts=(2,))
def partial_sums_over_a_statistic(p: Any, b: Any) -> Any:
    return (_halves(p, b) / (1 + errors(p, b).mean())).mean()


@case("mixes", counts=(2,))
def one_over_partial_sums(p: Any, b: Any) -> Any:
    return (2.0 / (1 + _halves(p, b))).mean()


@case("mixes", counts=(2,))
def inverses_of_partial_sums(p: Any, b: Any) -> Any:
    return (p["scale"] / _halves(p, b)).mean()


@case("mixes", counts=(2,))
def partial_sums_over_partial_sums(p: Any, b: Any) -> Any:
    return (_halves(p, b) / (1 + _halves(p, b))).mean()


@case("mixes", counts=(2,))
def partial_sums_by_a_statistic(p: Any, b: Any) -> Any:
    return (_halves(p, b) * errors(p, b).mean()).mean()


@case("mixes", counts=(2,))
def squared_partial_sums(p: Any, b: Any) -> Any:
    return any_jnp.dot(_halves(p, b), _halves(p, b))


@case("mixes", counts=(2,))
def partial_sums_above_a_bound(p: Any, b: Any) -> Any:
    return any_jnp.where(_halves(p, b) > 0.5, _halves(p, b), 0.0).mean()


@case("mean", counts=(2,))
def partial_sums_or_zeros(p: Any, b: Any) -> Any:
    return any_jnp.where(p["scale"] > 100.0, 0.0, _halves(p, b)).mean()


@case("sum", counts=(2,))
def partial_sums_or_others(p: Any, b: Any) -> Any:
    return any_jnp.where(p["scale"] > 0, _halves(p, b), 2 * _halves(p, b)).sum()


@case("mixes", counts=(2,))
def running_partial_sums(p: Any, b: Any) -> Any:
    return any_jnp.cumsum(_halves(p, b)).mean()


@case("mixes", counts=(2,))
def bounded_partial_sums_in_a_scan(p: Any, b: Any) -> Any:
    return any_lax.scan(lambda c, v: (c + any_jnp.maximum(v - 0.5, 0), None), 0.0, _halves(p, b))[0]


@case("mean", counts=(2,))
def partial_sums_by_fixed_weights(p: Any, b: Any) -> Any:
    return (_halves(p, b)[:, None] * any_jnp.arange(3.0)).mean()


@case("mean")
def products_of_neighbors(p: Any, b: Any) -> Any:
    """No microbatch separates two neighbors, so any function of both is one of an example of two."""
    pairs = errors(p, b).reshape(-1, 2).sum(1)
    return (pairs**2 / (1 + pairs)).mean()
