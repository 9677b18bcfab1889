"""The table of losses: each with its parameters, its batch, and what it is over microbatches."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

ROWS, WIDTH, TIME, CLASSES = 8, 4, 6, 5
Loss = Callable[[Any, Any], Any]
any_jax: Any = jax
any_jnp: Any = jnp
any_lax: Any = jax.lax


@dataclass(frozen=True)
class Case:
    """One loss and what it is: "mean", "sum", "exact", "mixes", or "unknown" if no rule decides it."""

    name: str
    loss: Loss
    is_: str
    counts: tuple[int, ...] = (2, 4)
    """The numbers of microbatches for which it is that."""
    tolerance: float = 1e-5
    """The relative difference by which rounding changes its numbers."""


CASES: dict[str, Case] = {}


def case(is_: str, counts: tuple[int, ...] = (2, 4), tolerance: float = 1e-5) -> Callable[[Loss], Loss]:
    """Enters a loss into the table under its function's name."""

    def enter(loss: Loss) -> Loss:
        name = loss.__name__
        assert name not in CASES, name
        CASES[name] = Case(name, loss, is_, counts, tolerance)
        return loss

    return enter


def parameters(seed: int = 0) -> dict[str, Any]:
    """Parameters from which every loss takes what it needs."""
    r = np.random.default_rng(seed)

    def normal(*shape: int) -> Any:
        return jnp.asarray(r.normal(size=shape) * 0.5, jnp.float32)

    return {
        "w": normal(WIDTH, WIDTH),
        "w2": normal(WIDTH, WIDTH),
        "out": normal(WIDTH, CLASSES),
        "b": normal(WIDTH),
        "layers": normal(3, WIDTH, WIDTH),
        "table": normal(CLASSES, WIDTH),
        "kernel": normal(3, WIDTH, WIDTH),
        "filter": normal(3, 3, 2, 2),
        "scale": normal(),
    }


def examples(seed: int = 1, rows: int = ROWS) -> dict[str, Any]:
    """A batch from which every loss takes what it needs: every leaf has a row an example."""
    r = np.random.default_rng(seed)

    def normal(*shape: int) -> Any:
        return jnp.asarray(r.normal(size=(rows, *shape)), jnp.float32)

    made = {
        "x": normal(WIDTH),
        "y": normal(WIDTH),
        "seq": normal(TIME, WIDTH),
        "image": normal(6, 6, 2),
        "label": r.integers(0, CLASSES, rows).astype(np.int32),
        "tokens": r.integers(0, CLASSES, (rows, TIME)).astype(np.int32),
        "mask": (r.random((rows, TIME)) < 0.6).astype(np.float32),
        "keep": np.resize(np.array([1, 0, 1, 1, 0, 1, 1, 0, 1, 0], np.float32), rows),
        "weight": (r.random(rows) + 0.5).astype(np.float32),
        "reward": normal(),
        "number": np.arange(rows, dtype=np.int32),
    }
    return {name: jnp.asarray(leaf) for name, leaf in made.items()}


def model(p: Any, b: Any) -> Any:
    """A layer on "x"."""
    return any_jnp.tanh(b["x"] @ p["w"] + p["b"])


def errors(p: Any, b: Any) -> Any:
    """The squared error of each example."""
    return ((model(p, b) - b["y"]) ** 2).mean(-1)


def logits(p: Any, b: Any) -> Any:
    return model(p, b) @ p["out"]


def token_losses(p: Any, b: Any) -> Any:
    """The loss of each token, [examples, time]."""
    scores = jax.nn.log_softmax(any_jnp.tanh(b["seq"] @ p["w"]) @ p["out"])
    return -any_jnp.take_along_axis(scores, b["tokens"][..., None], -1)[..., 0]


def microbatches(b: Any, count: int) -> list[Any]:
    return [any_jax.tree.map(lambda a, k=k: a.reshape(count, -1, *a.shape[1:])[k], b) for k in range(count)]


def numbers_of(tree: Any) -> list[Any]:
    """The leaves as numpy arrays of 64 bits."""
    return [np.asarray(x, np.float64) for x in jax.tree.leaves(tree)]


def is_equal(a: list[Any], b: list[Any], tolerance: float) -> bool:
    largest = max(1e-2, *(float(np.max(np.abs(x), initial=0.0)) for x in a))
    return all(float(np.max(np.abs(x - y), initial=0.0)) <= tolerance * largest for x, y in zip(a, b, strict=True))


def by_numbers(case: Case, count: int, seeds: tuple[int, ...] = (1, 11)) -> str:
    """What a loss over microbatches is, by values and gradients of some batches: "mean", "sum" or "other"."""
    graded: Any = any_jax.jit(any_jax.value_and_grad(case.loss))
    p, found = parameters(), set[str]()
    for b in map(examples, seeds):
        whole = numbers_of(graded(p, b))
        parts = [numbers_of(graded(p, one)) for one in microbatches(b, count)]
        total = [sum(each) for each in zip(*parts, strict=True)]
        is_mean = is_equal(whole, [t / count for t in total], case.tolerance)
        found.add("mean" if is_mean else "sum" if is_equal(whole, total, case.tolerance) else "other")
    return found.pop() if len(found) == 1 else "other"
