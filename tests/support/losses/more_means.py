"""More losses that are a mean over the examples: control flow, indices, own derivatives, numerics; and sums."""

from typing import Any

import jax
import optax

from support.losses.table import CLASSES, TIME, WIDTH, any_jax, any_jnp, any_lax, case, errors, logits, model

_optax: Any = optax


@any_jax.custom_vjp
def _clipped(x: Any) -> Any:
    return x


def _clipped_back(_: None, g: Any) -> Any:
    return (any_jnp.clip(g, -0.01, 0.01),)


_clipped.defvjp(lambda x: (x, None), _clipped_back)


@any_jax.custom_jvp
def _soft(x: Any) -> Any:
    return any_jnp.log1p(any_jnp.exp(x))


_soft.defjvp(lambda x, t: (_soft(x[0]), jax.nn.sigmoid(x[0]) * t[0]))


@case("mean")
def own_forward_derivative(p: Any, b: Any) -> Any:
    return _soft(model(p, b)).mean()


@case("mean")
def own_backward_of_parameters(p: Any, b: Any) -> Any:
    return ((any_jnp.tanh(b["x"] @ any_lax.stop_gradient(_clipped(p["w"]))) - b["y"]) ** 2).mean() * p["scale"]


@case("mean")
def branch_of_a_parameter(p: Any, b: Any) -> Any:
    h = any_lax.cond(p["scale"] > 0, lambda h: h @ p["w"], lambda h: h @ p["w2"], b["x"])
    return (any_jnp.tanh(h) ** 2).mean()


@case("mean")
def branch_of_each_example(p: Any, b: Any) -> Any:
    def one(x: Any, keep: Any) -> Any:
        return any_lax.cond(keep > 0, lambda x: any_jnp.tanh(x @ p["w"]), lambda x: x @ p["w2"], x)

    return (any_jax.vmap(one)(b["x"], b["keep"]) ** 2).mean()


@case("mean")
def experts_of_all(p: Any, b: Any) -> Any:
    gates = jax.nn.softmax(b["x"] @ p["out"][:, :3])
    every = any_jnp.einsum("bd,edf->ebf", b["x"], p["layers"])
    return (any_jnp.einsum("be,ebf->bf", gates, any_jnp.tanh(every)) ** 2).mean()


@case("mean")
def best_expert(p: Any, b: Any) -> Any:
    gates = jax.nn.softmax(b["x"] @ p["out"][:, :3])
    picked = jax.nn.one_hot(gates.argmax(-1), 3) * gates
    every = any_jnp.einsum("bd,edf->bef", b["x"], p["layers"])
    return (any_jnp.einsum("be,bef->bf", picked, every) ** 2).mean()


@case("mean")
def two_best_experts(p: Any, b: Any) -> Any:
    gates, chosen = any_lax.top_k(jax.nn.softmax(b["x"] @ p["out"][:, :3]), 2)
    every = any_jnp.tanh(any_jnp.einsum("bd,bkdf->bkf", b["x"], p["layers"][chosen]))
    return ((gates[..., None] * every).sum(1) ** 2).mean()


@case("mean")
def sorted_features(p: Any, b: Any) -> Any:
    return (any_jnp.sort(model(p, b), -1) * p["b"]).mean()


@case("mean")
def cumulated_over_time(p: Any, b: Any) -> Any:
    return (any_jnp.cumsum(b["seq"] @ p["w"], 1) ** 2).mean()


@case("mean")
def fourier_over_time(p: Any, b: Any) -> Any:
    return (abs(any_jnp.fft.rfft(b["seq"] @ p["w"], axis=1)) ** 2).mean()


@case("mean")
def matrices_per_example(p: Any, b: Any) -> Any:
    x = b["seq"] @ p["w"]
    gram = any_jnp.einsum("btd,bte->bde", x, x) + any_jnp.eye(WIDTH)
    return (any_jnp.linalg.cholesky(gram) ** 2).mean()


@case("mean")
def solved_per_example(p: Any, b: Any) -> Any:
    x = b["seq"] @ p["w"]
    gram = any_jnp.einsum("btd,bte->bde", x, x) + any_jnp.eye(WIDTH)
    lower = any_jnp.linalg.cholesky(gram)
    solve = any_jax.vmap(lambda a, y: any_jax.scipy.linalg.solve_triangular(a, y, lower=True))
    return (solve(lower, b["y"]) ** 2).mean()


@case("mean")
def histogram_per_example(p: Any, b: Any) -> Any:
    counts = any_jax.vmap(lambda t: any_jnp.zeros(CLASSES).at[t].add(1.0))(b["tokens"])
    return ((counts @ p["table"]) ** 2).mean()


@case("mean")
def written_per_example(p: Any, b: Any) -> Any:
    x = model(p, b)
    x = x.at[:, 1].set(0.5)
    return (x * b["y"]).mean()


@case("mean")
def window_per_example(p: Any, b: Any) -> Any:
    def one(seq: Any, start: Any) -> Any:
        return any_lax.dynamic_slice(seq, (start, 0), (2, WIDTH)) @ p["w"]

    return (any_jax.vmap(one)(b["seq"], b["label"] % TIME) ** 2).mean()


@case("mean")
def last_token_of_each(p: Any, b: Any) -> Any:
    x = any_jnp.tanh(b["seq"] @ p["w"])
    return (x[any_jnp.arange(x.shape[0]), b["label"] % TIME] * b["y"]).mean()


@case("mean")
def padded_features(p: Any, b: Any) -> Any:
    wide = any_jnp.pad(model(p, b), ((0, 0), (1, 2)))
    return (any_jnp.roll(wide, 1, axis=1)[:, ::-1] ** 2).mean()


@case("mean")
def tiled_features(p: Any, b: Any) -> Any:
    return (any_jnp.tile(model(p, b), (1, 3)) * any_jnp.repeat(b["y"], 3, 1)).mean()


@case("mean")
def largest_over_time(p: Any, b: Any) -> Any:
    return any_jnp.tanh(b["seq"] @ p["w"]).max(1).mean()


@case("mean")
def straight_through(p: Any, b: Any) -> Any:
    soft = jax.nn.softmax(logits(p, b))
    hard = jax.nn.one_hot(soft.argmax(-1), CLASSES)
    return ((soft + any_lax.stop_gradient(hard - soft)) @ p["table"] * b["y"]).mean()


@case("mean")
def gradient_penalty(p: Any, b: Any) -> Any:
    slope = any_jax.vmap(any_jax.grad(lambda x: any_jnp.tanh(x @ p["w"]).sum()))(b["x"])
    return (any_jnp.linalg.norm(slope, axis=-1) - 1).mean()


@case("mean")
def differential_equation(p: Any, b: Any) -> Any:
    def residual(x: Any) -> Any:
        value, slope = any_jax.jvp(lambda x: any_jnp.tanh(x @ p["w"]), (x,), (any_jnp.ones_like(x),))
        return ((slope + value) ** 2).sum()

    return any_jax.vmap(residual)(b["x"]).mean()


@case("mean")
def complex_numbers(p: Any, b: Any) -> Any:
    z = any_lax.complex(b["x"] @ p["w"], b["y"])
    return (abs(z * any_jnp.conj(z)) + z.real).mean()


@case("mean", tolerance=2e-2)
def narrow_types(p: Any, b: Any) -> Any:
    half = any_jnp.bfloat16
    out = any_jnp.tanh(b["x"].astype(half) @ p["w"].astype(half)).astype(any_jnp.float32)
    return (out * b["y"]).mean()


@case("mean")
def pieces(p: Any, b: Any) -> Any:
    x = model(p, b)
    return any_jnp.select([x < -0.5, x < 0.5], [x**2, abs(x)], x**3).mean()


@case("mean")
def temporal_difference(p: Any, b: Any) -> Any:
    now = any_jnp.take_along_axis(logits(p, b), b["label"][:, None], 1)[:, 0]
    later = any_lax.stop_gradient((b["y"] @ p["out"]).max(-1))
    return ((b["reward"] + 0.9 * later - now) ** 2).mean()


@case("mean")
def clipped_policy(p: Any, b: Any) -> Any:
    ratio = any_jnp.exp(model(p, b).sum(-1) - 0.1)
    gain = any_jnp.minimum(ratio * b["reward"], any_jnp.clip(ratio, 0.8, 1.2) * b["reward"])
    return -gain.mean()


@case("mean")
def divergence_of_gaussians(p: Any, b: Any) -> Any:
    mean, log_variance = any_jnp.split(b["x"] @ p["w"], 2, -1)
    return (0.5 * (any_jnp.exp(log_variance) + mean**2 - 1 - log_variance)).sum(-1).mean()


@case("mean")
def noise_of_each_example(p: Any, b: Any) -> Any:
    def one(x: Any, number: Any) -> Any:
        key = any_jax.random.fold_in(any_jax.random.key(0), number)
        return x * any_jax.random.bernoulli(key, 0.5, x.shape)

    return (any_jax.vmap(one)(model(p, b), b["number"]) * b["y"]).mean()


@case("mean")
def noise_of_parameters(p: Any, b: Any) -> Any:
    noise = any_jax.random.normal(any_jax.random.key(0), p["w"].shape)
    return (any_jnp.tanh(b["x"] @ (p["w"] + 0.1 * noise)) * b["y"]).mean()


@case("mean")
def forward_backward_over_time(p: Any, b: Any) -> Any:
    move = jax.nn.log_softmax(p["out"][:CLASSES, :WIDTH])

    def step(alpha: Any, emission: Any) -> Any:
        return any_jax.nn.logsumexp(alpha[..., None] + move, axis=1) + emission, None

    scores = any_jnp.swapaxes(jax.nn.log_softmax(b["seq"]), 0, 1)
    alpha, _ = any_lax.scan(step, scores[0], scores[1:])
    return -any_jax.nn.logsumexp(alpha, axis=-1).mean()


@case("mean")
def alignment_of_optax(p: Any, b: Any) -> Any:
    scores = b["seq"] @ p["out"]
    no_padding = any_jnp.zeros(b["mask"].shape)
    return _optax.ctc_loss(scores, no_padding, 1 + b["tokens"][:, :2] % 4, no_padding[:, :2]).mean()


@case("mean")
def normed_parameter(p: Any, b: Any) -> Any:
    v = any_lax.fori_loop(0, 3, lambda _, v: (v := p["w"].T @ (p["w"] @ v)) / any_jnp.linalg.norm(v), p["b"])
    return (any_jnp.tanh(b["x"] @ (p["w"] / any_jnp.linalg.norm(p["w"] @ v))) ** 2).mean()


@case("mean")
def checked(p: Any, b: Any) -> Any:
    any_jax.debug.callback(lambda _: None, errors(p, b).mean())
    return errors(p, b).mean()


@case("mean")
def softmax_without_some(p: Any, b: Any) -> Any:
    scores = any_jnp.where(any_jnp.arange(WIDTH) < 2, model(p, b), -any_jnp.inf)
    return (any_jnp.exp(scores) * b["y"]).mean()


@case("mean")
def not_a_number_where_negative(p: Any, b: Any) -> Any:
    x = errors(p, b)
    return any_jnp.where(x >= 0, x, any_jnp.nan).mean()


@case("mean")
def stacked_with_numbers_of_features(p: Any, b: Any) -> Any:
    numbers = any_jnp.broadcast_to(any_jnp.arange(1.0, WIDTH + 1), b["x"].shape)
    return any_jnp.stack([model(p, b), numbers]).prod(0).mean()


@case("sum")
def summed(p: Any, b: Any) -> Any:
    return errors(p, b).sum()


@case("sum")
def summed_by_product(p: Any, b: Any) -> Any:
    error = model(p, b) - b["y"]
    return any_jnp.vdot(error, error)


@case("unknown")  # einsum contracts in another order for another number of examples
def summed_by_einsum(p: Any, b: Any) -> Any:
    return any_jnp.einsum("bi,ij,bj->", b["x"], p["w"], b["y"])


@case("sum")
def summed_in_a_loop(p: Any, b: Any) -> Any:
    def step(total: Any, x: Any) -> Any:
        return total + (any_jnp.tanh(x @ p["w"]) ** 2).sum(), None

    return any_lax.scan(step, 0.0, b["x"])[0]


@case("sum")
def divided_by_a_constant(p: Any, b: Any) -> Any:
    return errors(p, b).sum() / 8


@case("sum")
def summed_by_class(p: Any, b: Any) -> Any:
    by_class = any_jnp.zeros(CLASSES).at[b["label"]].add(errors(p, b))
    return by_class @ any_jnp.arange(1.0, CLASSES + 1)


@case("sum")
def mean_times_count(p: Any, b: Any) -> Any:
    return errors(p, b).mean() * b["x"].shape[0]
