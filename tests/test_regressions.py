"""Each test shows a fixed bug by the smallest program that had it."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.codes import code_of

import pathways as pw
from pathways.api.process import process
from pathways.api.reference import compare
from pathways.dialect.plan.plan_file import load_plan, write_plan
from pathways.runtime.host.devices import pjrt

MESH = pw.make_virtual_device_set().add_slice(devices=2).mesh("x")
ON = NamedSharding(MESH, P("x"))
X = np.arange(8, dtype=np.float32)
jit: Any = jax.jit
plus_one: Any = jit(lambda x: x + 1, in_shardings=ON)


def test_calls_with_different_keywords_use_different_plans() -> None:
    program = pw.program(lambda x, a=0.0, b=0.0: x + 10 * a + 1000 * b)
    assert float(program(0.0, a=1.0)) == 10
    assert float(program(0.0, b=1.0)) == 1000


def test_argnums_count_parameters_and_not_passed_arguments() -> None:
    program = pw.program(lambda x, a=0.0, b=0.0: x + a + b, donate_argnums=1)
    y = pw.program(lambda x: x + 1)(X)
    program(X, b=y)
    np.testing.assert_array_equal(np.asarray(y), X + 1)
    power: Any = pw.program(lambda x, scale=1.0, n=1: scale * x**n, static_argnums=2)
    np.testing.assert_allclose(np.asarray(power(X, n=3)), X**3)


def test_static_values_of_different_types_are_compiled_separately() -> None:
    program: Any = pw.program(lambda x, n: x * n, static_argnums=1)
    x = np.arange(3)
    assert program(x, 2).dtype == np.int32 and program(x, 2.0).dtype == np.float32


def test_handles_are_checked_like_arrays() -> None:
    floats, integers = pw.program(lambda x: x + 1)(X), pw.program(lambda x: x + 1)(np.arange(8))
    compiled = pw.program(lambda x: 2 * x).lower(X).compile()
    np.testing.assert_array_equal(np.asarray(compiled(floats)), 2 * (X + 1))
    assert code_of(compiled, integers) == "PWC0501"


class Layer(NamedTuple):
    w: Any
    b: Any


def test_a_loaded_plan_distinguishes_named_tuples_from_dicts(tmp_path: Path) -> None:
    path = tmp_path / "plan.bin"
    pw.program(lambda p: p.w - 100 * p.b).lower(Layer(1.0, 2.0)).compile().save(path)
    loaded = pw.load(path)
    assert float(loaded(Layer(1.0, 2.0))) == -199
    assert code_of(loaded, {"w": 1.0, "b": 2.0}) == "PWC0502"


def test_integers_out_of_range_are_refused() -> None:
    compiled = pw.program(lambda x: x + 1).lower(3).compile()
    assert int(compiled(41)) == 42
    assert code_of(compiled, 2**33) == "PWC0501"


@pytest.mark.parametrize(
    ("actual", "expected", "close"),
    [
        (np.array([np.inf]), np.array([np.nan]), False),
        (np.array([np.inf]), np.array([-np.inf]), False),
        (np.array([np.nan, 1.0]), np.array([np.nan, 1.0]), True),
        (np.array([2**60]), np.array([2**60 + 1]), False),
        (np.array([1.0], np.float32), np.array([1.0 + 1e-6], np.float32), True),
    ],
)
def test_compare_is_exact_for_infinities_nans_and_integers(actual: Any, expected: Any, close: bool) -> None:
    assert compare("x", actual, expected).close is close


def test_threads_run_different_programs_on_the_same_devices() -> None:
    def work(x: Any, k: int) -> Any:
        return x + k * lax.pmean(x, "x")

    def program_of(k: int) -> pw.Program:
        body: Any = jax.shard_map(lambda x: work(x, k), mesh=MESH, in_specs=P("x"), out_specs=P("x"))
        return pw.program(lambda x: body(body(x)))

    programs = [program_of(k) for k in range(6)]
    expected = [np.asarray(p(X)) for p in programs]
    failures: list[int] = []

    def client(k: int) -> None:
        for _ in range(25):
            if not np.array_equal(np.asarray(programs[k](X)), expected[k]):
                failures.append(k)

    threads = [threading.Thread(target=client, args=(k,)) for k in range(len(programs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not failures and not any(t.is_alive() for t in threads)


def test_donating_a_handle_keeps_other_handles_of_its_value() -> None:
    twice = pw.program(lambda x: (plus_one(x),) * 2)
    eat = pw.program(lambda x: 3 * jax.device_put(x, ON), donate_argnums=0)
    a, b = twice(X)
    np.testing.assert_array_equal(np.asarray(eat(a)), 3 * (X + 1))
    np.testing.assert_array_equal(np.asarray(b), X + 1)
    assert code_of(np.asarray, a) == "PWC0207" and "donated" in repr(a)
    keep = pw.program(lambda x, y: (3 * jax.device_put(x, ON), jax.device_put(y, ON)), donate_argnums=0)
    first, second = keep(b, b)
    np.testing.assert_array_equal(np.asarray(second), X + 1)
    np.testing.assert_array_equal(np.asarray(first), 3 * (X + 1))


def test_returned_constants_do_not_accumulate() -> None:
    table = jnp.arange(512.0)
    program = pw.program(lambda x: (table, x + 1))
    program(X)
    before = len(process().store.buffers)
    for _ in range(5):
        np.testing.assert_array_equal(np.asarray(program(X)[0]), table)
    assert len(process().store.buffers) <= before


def test_programs_can_be_nested_and_transformed() -> None:
    inner = pw.program(lambda x: plus_one(x) ** 2)
    outer = pw.program(lambda x: inner(inner(x)) + jax.grad(lambda v: inner(v).sum())(x))
    expected = ((X + 1) ** 2 + 1) ** 2 + 2 * (X + 1)
    np.testing.assert_allclose(np.asarray(outer(X)), expected, rtol=1e-6)


def test_scalar_results_compare_format_and_index_by_value() -> None:
    y = pw.program(lambda x: x + 1)(1.0)
    assert y == 2.0 and y != 3.0
    assert f"{y:.2f}" == "2.00" and [10, 20, 30][pw.program(lambda x: x)(2)] == 30


def test_ops_that_lower_to_composites_equal_plain_jax() -> None:
    program = pw.program(lambda x: (lax.top_k(x, 3), lax.erf(x), jnp.arcsinh(x)))
    expected = jit(program.function)(X)
    for ours, plain in zip(jax.tree.leaves(program(X)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(plain), rtol=1e-6)


def test_empty_arrays_pass_through_shardings() -> None:
    doubled = jit(lambda x: 2 * x, in_shardings=ON, out_shardings=ON)
    program = pw.program(lambda x: (doubled(x), jax.device_put(x, ON)))
    for result in program(np.zeros((4, 0), np.float32)):
        assert np.asarray(result).shape == (4, 0)


def test_other_key_types_and_float0_arrays_are_supported() -> None:
    key = jax.random.key(1, impl="unsafe_rbg")
    program = pw.program(lambda k: jax.random.fold_in(k, 1))
    result = program(key)
    assert result.dtype == key.dtype and result.to_jax().dtype == key.dtype and "key" in repr(result)
    assert code_of(program.lower(key).compile(), jax.random.key(1)) == "PWC0501"
    zero: Any = np.zeros((3,), jax.dtypes.float0)
    back = pw.program(lambda z: z)(zero)
    assert np.asarray(back).dtype == jax.dtypes.float0


def test_a_long_chain_of_constant_ops_compiles() -> None:
    def program(x: Any) -> Any:
        t = jnp.float32(0)
        for _ in range(1500):
            t = t + 1
        return x + t

    np.testing.assert_array_equal(np.asarray(pw.program(program)(X)), X + 1500)


def test_a_plan_with_a_deep_pytree_is_saved_and_loaded(tmp_path: Path) -> None:
    deep: Any = X
    for _ in range(150):
        deep = [deep]
    path = tmp_path / "plan.bin"
    pw.program(lambda t: t).lower(deep).compile().save(path)
    assert len(jax.tree.leaves(pw.load(path)(deep))) == 1


def test_a_plan_with_integer_dict_keys_is_saved_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "plan.bin"
    pw.program(lambda t: t).lower({1: X, 2: X}).compile().save(path)
    assert sorted(pw.load(path)({1: X, 2: X})) == [1, 2]


def test_a_failure_after_dispatch_has_an_error_code(monkeypatch: pytest.MonkeyPatch) -> None:
    result = pw.program(plus_one)(X)

    class Failed:
        def block_until_ready(self) -> None:
            raise pjrt.FAILURES[0]("RESOURCE_EXHAUSTED: injected")

    result.handle.buffer.array = Failed()
    with pytest.raises(pw.PathwaysError, match="RESOURCE_EXHAUSTED") as caught:
        result.block_until_ready()
    assert caught.value.code == "PWC0937" and caught.value.diagnostic.where is not None


def test_equal_shard_maps_are_lowered_once() -> None:
    body: Any = jax.shard_map(lambda x: x + 1, mesh=MESH, in_specs=P("x"), out_specs=P("x"))

    def program(x: Any) -> Any:
        for _ in range(20):
            x = body(x)
        return x

    lowered = pw.program(program).lower(X)
    assert lowered.as_text().count("sdy.manual_computation") == 1


def test_modules_that_contradict_their_plan_are_refused(moe_plan: Path, tmp_path: Path) -> None:
    plan = load_plan(moe_plan)
    by_size = sorted(plan.computations, key=lambda c: len(c.inputs))
    swapped = {by_size[0].name: by_size[-1].module, by_size[-1].name: by_size[0].module}
    bad = replace(plan, computations=tuple(replace(c, module=swapped.get(c.name, c.module)) for c in plan.computations))
    broken = replace(plan, computations=(replace(plan.computations[0], module=b"nonsense"), *plan.computations[1:]))
    for hostile in (bad, broken):
        path = tmp_path / "hostile.bin"
        path.write_bytes(write_plan(hostile))
        assert code_of(pw.load, path) == "PWC0604"


def test_invalid_definitions_have_an_error_code() -> None:
    devices = pw.make_virtual_device_set()
    not_a_function: Any = 3
    assert code_of(pw.program, not_a_function) == "PWC0104"
    assert code_of(lambda: pw.program(lambda x: x, donate_argnums=3)) == "PWC0104"
    assert code_of(lambda: pw.program(lambda x: x, donate_argnums=0, static_argnums=0)) == "PWC0104"
    for count in (2.5, "4", 0, -1, True):
        assert code_of(lambda count=count: devices.add_slice(count)) == "PWC0104"
    assert devices.add_slice(4, topology=4).mesh("a", 4).size == 4
    assert code_of(pw.program(lambda x: x).lower(X).as_text, "nope") == "PWC0104"
    assert code_of(lambda: pw.program(plus_one).lower(X).compile().save("/nowhere/plan.bin")) == "PWC0606"


def test_leaked_and_converted_tracers_have_an_error_code() -> None:
    kept: list[Any] = []

    def leak(x: Any) -> Any:
        kept.append(plus_one(x))
        return kept[0] + x

    pw.program(leak).lower(X)
    assert code_of(pw.program(leak).lower, X) == "PWC0103"
    assert code_of(pw.program(lambda x: np.sin(plus_one(x))), X) == "PWC0103"


def test_only_one_of_two_threads_can_donate_an_array() -> None:
    eat = pw.program(lambda x: 3 * jax.device_put(x, ON), donate_argnums=0)
    make = pw.program(lambda x: plus_one(x))
    eat(make(X))
    for _ in range(20):
        array, outcomes = make(X), list[str]()
        start = threading.Barrier(2)

        def client(array: Any = array, start: threading.Barrier = start, outcomes: list[str] = outcomes) -> None:
            start.wait()
            try:
                np.testing.assert_array_equal(np.asarray(eat(array)), 3 * (X + 1))
                outcomes.append("ok")
            except pw.PathwaysError as error:
                outcomes.append(error.code)

        threads = [threading.Thread(target=client) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert sorted(outcomes) == ["PWC0207", "ok"]


def test_device_kinds_are_checked_for_islands_that_are_already_bound(tmp_path: Path) -> None:
    lowered = pw.program(lambda x: x + 2).lower(X)
    lowered.compile("islands=1,devices=3")
    assert code_of(lowered.compile, "islands=1,devices=3,kind=h100") == "PWC0503"


def test_a_refused_call_donates_nothing() -> None:
    step = pw.program(lambda params, x: params + x, donate_argnums=0)
    params, stale = plus(X), plus(X)
    pw.program(lambda x: x * 2, donate_argnums=0)(stale)
    assert code_of(step, params, stale) == "PWC0207"
    np.testing.assert_array_equal(np.asarray(step(params, X)), 2 * X + 1)


def test_a_loop_with_a_host_callback_runs_its_only_placed_call() -> None:
    """JAX adds a mesh without axes for the callback. It was taken for the mesh of the loop."""

    def counted(x: Any, f: Any) -> Any:
        def body(state: Any) -> Any:
            jax.debug.callback(lambda _: None, state[0])
            return state[0] + 1, f(state[1])

        return lax.while_loop(lambda state: state[0] < 3, body, (0, x))

    one = NamedSharding(pw.make_virtual_device_set().add_slice(devices=1).mesh("x"), P())
    placed: Any = jit(lambda x: x * 2, in_shardings=one)
    times, value = pw.program(lambda x: counted(x, placed))(X)
    assert int(times) == 3
    np.testing.assert_array_equal(np.asarray(value), X * 8)


plus = pw.program(lambda x: plus_one(x))
