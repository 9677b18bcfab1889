"""A small model for `pwc search`: a residual network of named layers with Megatron's two products each."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

LAYERS, WIDTH, ROWS = 4, 32, 16


def init(make: Any = jax.ShapeDtypeStruct) -> list[dict[str, Any]]:
    shapes = {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    return [{name: make(shape, np.float32) for name, shape in shapes.items()} for _ in range(LAYERS)]


def random_init() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return init(lambda shape, dtype: rng.standard_normal(shape).astype(dtype) / 8)


def loss(params: Any, rows: Any) -> Any:
    for i, p in enumerate(params):
        with jax.named_scope(f"layer_{i}"):
            rows = rows + jax.nn.gelu(rows @ p["up"]) @ p["down"]
    return (rows**2).mean()


def contrastive(params: Any, rows: Any) -> Any:
    """Compares all rows of the batch with each other, so that its work is not linear in the number of rows."""
    made = rows @ params[0]["up"]
    return jnp.mean((made @ made.T) ** 2)


def batch(rows: int = ROWS) -> Any:
    return jax.ShapeDtypeStruct((rows, WIDTH), np.float32)


def example() -> tuple[Any, Any]:
    return init(), batch()
