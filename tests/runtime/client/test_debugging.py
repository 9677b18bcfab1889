"""JAX's debugging settings apply to programs or a warning is raised; errors of traced values contain hints."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.runtime.client import debugging

devices = pw.make_virtual_device_set()
first, second = (devices.add_slice(devices=2).mesh("d") for _ in range(2))
log = jax.jit(lambda x: jnp.log(x), in_shardings=NamedSharding(first, P("d")))
scaled = jax.jit(lambda x: x * 1e30, in_shardings=NamedSharding(second, P("d")))
moved = jax.jit(lambda x: x + 1, in_shardings=NamedSharding(second, P("d")))
gang = jax.jit(lambda x: jnp.log(x - x.sum()), in_shardings=NamedSharding(first, P("d")))
X = np.arange(1, 5, dtype=np.float32)


@pw.program
def step(x: Any) -> Any:
    return moved(log(x)), x


def error_of(call: Callable[[], Any], code: str = "PWC0211") -> Any:
    with pytest.raises(pw.PathwaysError) as caught:
        call()
    assert caught.value.code == code
    return caught.value.diagnostic


def test_debug_nans_names_the_first_computation_that_makes_a_nan() -> None:
    with jax.debug_nans(True):
        assert np.allclose(step(X)[0], np.log(X) + 1)
        with pytest.raises(FloatingPointError) as caught:
            step(-X)
        assert isinstance(caught.value, pw.PathwaysError)
        error = caught.value.diagnostic
        assert error.text(error.have) == "NaN in 4 of 4 values of result 0"
        assert error.where is not None and error.where.function == "step"
        error_of(lambda: pw.program(lambda x: gang(x))(X))
    assert np.isnan(np.asarray(step(-X)[0])).all()  # without the setting, NaN is an ordinary result


def test_debug_infs_and_debug_nans_are_independent_settings() -> None:
    program = pw.program(lambda x: scaled(scaled(x)))
    with jax.debug_infs(True):
        assert (
            "infinity" in error_of(lambda: program(X)).render()
            and "jax.debug_infs" in error_of(lambda: program(X)).render()
        )
        step(-X)
    with jax.debug_nans(True):
        program(X)


def test_debug_nans_checks_compiled_plans_and_bodies_of_loops() -> None:
    compiled = step.lower(X).compile()

    def falling(x: Any) -> Any:
        return lax.while_loop(lambda c: c[1] < 3, lambda c: (log(c[0]), c[1] + 1), (x, x[0].astype(int) * 0))

    with jax.debug_nans(True):
        error_of(lambda: compiled(-X))
        error_of(lambda: jax.tree.map(np.asarray, pw.program(falling)(X)))
    assert np.isnan(np.asarray(compiled(-X)[0])).all()


def test_debug_nans_accepts_integers_and_keys_and_checks_bfloat16() -> None:
    with jax.debug_nans(True), jax.debug_infs(True):
        program = pw.program(lambda x, k: (moved(x), jax.random.split(k)))
        program(np.arange(4), jax.random.key(0))
        with pytest.raises(FloatingPointError):
            pw.program(lambda x: log(x))(-X.astype(jnp.bfloat16))


def test_transfer_guards_apply_to_arguments_that_a_call_would_copy() -> None:
    held = step(X)[0]
    program = pw.program(lambda x: log(moved(x)) + jnp.asarray(np.ones(4, np.float32) * 2))
    with jax.transfer_guard("disallow"):
        made = program(held)  # transfers and constants of the program itself are allowed
        for call in (lambda: program(X), lambda: program.lower(X).compile()(X), lambda: program(1.0 * X)):
            error = error_of(call, "PWC0210")
            assert "a copy of x of lambda from the host" in error.text(error.title)
        assert "from other devices" in error_of(lambda: program(jax.device_put(X)), "PWC0210").render()
        assert "from other devices" in error_of(lambda: pw.program(lambda x: log(x))(held), "PWC0210").render()
        with jax.transfer_guard("allow"):
            program(X)
    assert np.allclose(made, np.log(np.log(X) + 2) + 2)
    with jax.transfer_guard_host_to_device("disallow"):
        program(jax.device_put(X))
        error_of(lambda: program(X), "PWC0210")
    with jax.transfer_guard_device_to_device("disallow"):
        program(X)
    with jax.transfer_guard("log"):
        program(X)


def test_unused_arguments_are_not_copied() -> None:
    program = pw.program(lambda x, unused: moved(x))
    held = program(X, X)
    with jax.transfer_guard("disallow"):
        program(held, X)


def test_debugging_is_asked_for_only_by_a_setting_of_jax() -> None:
    assert not debugging.is_requested()
    for setting in (jax.debug_nans, jax.debug_infs):
        with setting(True):
            assert debugging.is_requested()
    with jax.transfer_guard("allow"):
        assert debugging.is_requested()


def test_disable_jit_does_not_apply_to_programs_and_warns() -> None:
    program = pw.program(lambda x: moved(log(x)))
    with jax.disable_jit(), pytest.warns(UserWarning, match="jax.disable_jit has no effect on programs") as caught:
        made = program(X)
    assert caught[0].filename == __file__ and np.allclose(made, np.log(X) + 1)
    assert made.sharding.mesh.devices.flat[0].slice.name == devices.slices[1].name  # placed as always
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program(X)


PRINTING: dict[str, Callable[[Any], Any]] = {
    "float": lambda x: print(float(x[0])),
    "int": lambda x: print(int(x[0])),
    "item": lambda x: print(x[0].item()),
    "tolist": lambda x: print(x.tolist()),
    "format": lambda x: print(f"{x[0]:.2f}"),
    "numpy": lambda x: print(np.asarray(x)),
}


@pytest.mark.parametrize("name", PRINTING)
def test_printing_a_traced_value_suggests_debug_print(name: str) -> None:
    def printing(x: Any) -> Any:
        PRINTING[name](x)
        return log(x)

    error = error_of(lambda: pw.program(printing)(X), "PWC0103")
    assert "jax.debug.print('{}', x)" in error.text(error.hint)
    assert error.where is not None and error.where.file == __file__


USES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "index": (lambda x: [1, 2, 3][x[0].astype(int)], "an index, or a count"),
    "range": (lambda x: list(range(x[0].astype(int))), "an index, or a count"),
    "shape": (lambda x: jnp.zeros(x[0].astype(int)), "a shape in it depends"),
    "if": (lambda x: 1 if x[0] > 0 else 2, "to decide what to do"),
}


@pytest.mark.parametrize("name", USES)
def test_the_error_names_why_tracing_needs_a_value(name: str) -> None:
    function, problem = USES[name]
    error = error_of(lambda: pw.program(lambda x: (function(x), log(x)))(X), "PWC0103")
    assert problem in error.text(error.title) and "static_argnums" in error.text(error.hint)


def test_debug_print_prints(capsys: pytest.CaptureFixture[str]) -> None:
    def printing(x: Any) -> Any:
        jax.debug.print("first {}", x[0])
        return log(x)

    np.asarray(pw.program(printing)(X))
    jax.effects_barrier()
    assert "first 1.0" in capsys.readouterr().out
