"""Implements `pw.check_microbatches`. It computes a loss and its gradients over microbatches and for the whole batch,
and compares the numbers. Users call it with example arguments; it needs no virtual devices.
"""

from typing import Any

import jax
import numpy as np

from pathways.compiler.frontends.jax.pipeline.errors import MicrobatchesDiffer
from pathways.compiler.frontends.jax.pipeline.pipeline import Pipelined
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.user_line import caller

_any_jax: Any = jax
TOLERANCE = 1e-3
"""Largest accepted relative difference. Microbatches only add the same numbers in another order."""


def check_microbatches(pipelined: Pipelined, *args: Any, tolerance: float = TOLERANCE, **kwargs: Any) -> float:
    """Compares the loss and its gradients over microbatches with those of the whole batch, on JAX's default device.

    The arguments are those of the loss, as arrays. Returns the largest relative difference. The loss is compared with
    itself, and gradients with the largest number of all gradients. Raises PWC0114 if the difference is more than
    `tolerance`. Typical causes are batch statistics and negatives within the batch. `Pipelined.batch_semantics` reports
    the verdict and the source lines without computing numbers.
    """
    counts = (1, pipelined.options.microbatches.count)
    worst, where = _farthest(*(_graded(pipelined, count, args, kwargs) for count in counts))
    if not worst <= tolerance:
        n = pipelined.options.microbatches.count
        error = MicrobatchesDiffer(
            loss=pipelined.name,
            microbatches=n,
            have_=f"{where} over {n} microbatches differs from the whole batch by {worst:.2g} of the largest number",
            advice="reduce='sum' for sums; microbatches=1 if examples interact; batch_semantics(...) shows the lines",
            where=caller(),
        )
        raise PathwaysError(error)
    return worst


def _graded(pipelined: Pipelined, count: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the loss over `count` microbatches and its gradients, by name.

    The gradients are by all floating-point arrays outside the batch.
    """
    value, leaves, names = pipelined.unplaced(count, *args, **kwargs)
    loss, gradients = _any_jax.value_and_grad(value)(leaves)
    named = {f"the gradient of {name}": g for name, g in zip(names, gradients, strict=True)}
    return {"the loss": loss, **named}


def _farthest(whole: dict[str, Any], parts: dict[str, Any]) -> tuple[float, str]:
    """Returns the largest difference and its name.

    Gradients are compared with the largest number of all gradients, since some gradients are only rounding noise.
    """
    known = {name: (np.asarray(a, np.float64), np.asarray(parts[name], np.float64)) for name, a in whole.items()}
    sizes = {name: float(np.max(np.abs(a), initial=0.0)) for name, (a, _) in known.items()}
    largest = max((size for name, size in sizes.items() if name != "the loss"), default=0.0)
    worst, where = 0.0, "the loss"
    for name, (a, b) in known.items():
        scale = (sizes[name] if name == "the loss" else largest) or 1.0
        far = float(np.max(np.abs(a - b), initial=0.0)) / scale
        if not np.isfinite(far):
            return far, name
        if far > worst:
            worst, where = far, name
    return worst, where
