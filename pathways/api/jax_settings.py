"""Copies JAX's settings of one thread, such as `jax.enable_x64`, to another thread. `pw.Client` needs it because it
runs calls on threads of its own.
"""

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import jax

from pathways.compiler.frontends.jax.meshes import ambient
from pathways.dialect.jax_api import set_mesh

_jax: Any = jax
_NAMES = tuple(
    name
    for name in (
        *("allow_f16_reductions", "check_tracer_leaks", "debug_infs", "debug_key_reuse", "debug_nans"),
        *("default_device", "default_matmul_precision", "default_prng_impl", "disable_jit", "enable_checks"),
        *("enable_custom_prng", "enable_x64", "explain_cache_misses", "legacy_prng_key", "log_compiles"),
        *("numpy_dtype_promotion", "numpy_rank_promotion", "softmax_custom_jvp", "threefry_partitionable"),
        *("transfer_guard_device_to_device", "transfer_guard_device_to_host", "transfer_guard_host_to_device"),
    )
    if hasattr(jax, name) and hasattr(jax.config, f"jax_{name}")
)
"""Settings with a public context manager. Versions of JAX differ in them."""


@dataclass(frozen=True)
class JaxSettings:
    """The JAX settings of one thread, and the mesh of its `jax.set_mesh`."""

    values: tuple[Any, ...]
    mesh: Any

    @staticmethod
    def of_this_thread() -> "JaxSettings":
        return JaxSettings(tuple(getattr(_jax.config, f"jax_{name}") for name in _NAMES), ambient())

    @contextlib.contextmanager
    def entered(self) -> Generator[None]:
        """Applies these settings to this thread for the length of a block."""
        here = JaxSettings.of_this_thread()
        with contextlib.ExitStack() as stack:
            for name, wanted, seen in zip(_NAMES, self.values, here.values, strict=True):
                if wanted != seen:
                    stack.enter_context(getattr(_jax, name)(wanted))
            if self.mesh is not None and self.mesh != here.mesh:
                stack.enter_context(set_mesh(self.mesh))
            yield
