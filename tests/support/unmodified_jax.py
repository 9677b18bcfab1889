"""A JAX program that knows nothing of this project. It checks one feature after the other against numpy, and prints the
names of those that fail, with the reasons, as JSON. `tests/ifrt_proxy/test_proxy.py` runs it as a client of a proxy.

    python -m support.unmodified_jax
"""

import gc
import json
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jnp: Any = jnp
jit: Any = jax.jit
SPECS = (P("x", "y"), P("y", "x"), P(("y", "x")), P(None, ("x", "y")), P("y"), P())
DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint32", "float16", "bfloat16", "complex64"),
    *("float8_e4m3fn", "float8_e5m2", "int4", "uint4"),
)
ROWS = np.arange(64, dtype=np.float32).reshape(8, 8)


def _mesh() -> Mesh:
    devices = np.array(jax.devices())
    return Mesh(devices.reshape(2, len(devices) // 2), ("x", "y"))


def devices_are_those_of_the_island() -> None:
    assert len(jax.devices()) == 4 and "island0:3" in str(jax.devices()), jax.devices()


def values_keep_their_element_type() -> None:
    for name in [
        "bool",
        "int8",
        "uint8",
        "int16",
        "uint32",
        "float16",
        "bfloat16",
        "complex64",
        "float8_e4m3fn",
        "float8_e5m2",
        "int4",
        "uint4",
    ]:
        given = (np.arange(6) % 2).astype(jnp.dtype(name))
        found = np.asarray(jit(lambda v: v[::-1])(jnp.asarray(given)))
        assert found.dtype == given.dtype and found.tobytes() == given[::-1].tobytes(), name


def strided_host_arrays_are_read_correctly() -> None:
    for given in (ROWS.T, ROWS[::2], ROWS[:, 1:4], ROWS[0, 0], np.zeros((0, 3), np.float32)):
        np.testing.assert_array_equal(np.asarray(jax.device_put(given)), given)


def arrays_are_sharded_and_resharded() -> None:
    mesh = _mesh()
    for one in SPECS:
        there = jax.device_put(ROWS, NamedSharding(mesh, one))
        for shard in there.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), ROWS[shard.index])
        for other in SPECS:
            moved = jax.device_put(there, NamedSharding(mesh, other))
            np.testing.assert_array_equal(np.asarray(moved), ROWS)


def results_have_the_sharding_that_the_program_states() -> None:
    mesh = _mesh()
    for spec in SPECS:
        made = jit(lambda v: v + 1, out_shardings=NamedSharding(mesh, spec))(ROWS)
        for shard in made.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), (ROWS + 1)[shard.index])


def collectives_span_all_devices() -> None:
    mesh = _mesh()
    total = jax.shard_map(lambda v: jax.lax.psum(v, ("x", "y")), mesh=mesh, in_specs=P(("x", "y")), out_specs=P())
    there = jax.device_put(ROWS, NamedSharding(mesh, P(("x", "y"))))
    np.testing.assert_array_equal(np.asarray(jit(total)(there)), ROWS.reshape(4, 2, 8).sum(0))


def a_mesh_in_another_order_of_devices_works() -> None:
    mesh = Mesh(np.array(jax.devices())[[3, 1, 0, 2]].reshape(2, 2), ("a", "b"))
    there = jax.device_put(ROWS, NamedSharding(mesh, P("a", "b")))
    for shard in there.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), ROWS[shard.index])
    np.testing.assert_array_equal(np.asarray(jit(lambda v: v @ v)(there)), ROWS @ ROWS)


def arrays_move_to_meshes_in_another_order_of_devices() -> None:
    meshes = [
        Mesh(np.array(jax.devices())[order].reshape(2, 2), ("x", "y"))
        for order in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2])
    ]
    square = jit(lambda v: v @ v)
    for number, spec in enumerate(SPECS):
        first, second = meshes[number % 3], meshes[(number + 1 + number // 3) % 3]
        there = jax.device_put(ROWS, NamedSharding(first, spec))
        moved = jax.device_put(there, NamedSharding(second, P("y", "x")))
        for shard in moved.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), ROWS[shard.index])
        assert moved.sharding.mesh.devices.tolist() == second.devices.tolist()
        np.testing.assert_array_equal(np.asarray(square(moved)), ROWS @ ROWS)
        np.testing.assert_array_equal(np.asarray(there), ROWS)


def functions_take_arrays_on_several_meshes() -> None:
    grid, line = _mesh(), Mesh(_mesh().devices.ravel(), ("z",))
    rows, columns = NamedSharding(line, P("z")), NamedSharding(grid, P(None, ("y", "x")))
    one, other = jax.device_put(ROWS, rows), jax.device_put(ROWS, columns)
    for out in (rows, columns, NamedSharding(grid, P("y", "x"))):
        made = jit(lambda v, w: (v + w, w), out_shardings=(out, columns))(one, other)
        assert made[0].sharding == out and made[1].sharding == columns
        for shard in made[0].addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), (ROWS + ROWS)[shard.index])
        np.testing.assert_array_equal(np.asarray(made[1]), ROWS)
    for given, inside in (
        (one, columns),
        (other, rows),
        (one, rows),
        (jax.device_put(ROWS, NamedSharding(grid, P())), rows),
    ):
        made = jit(lambda v, inside=inside: jax.lax.with_sharding_constraint(v + 1, inside) * 2)(given)
        np.testing.assert_array_equal(np.asarray(made), (ROWS + 1) * 2)
    small = [
        Mesh(np.array(jax.devices()[:1]).reshape(shape), names)
        for shape, names in (((1, 1), ("x", "y")), ((1,), ("z",)))
    ]
    there = jax.device_put(ROWS, NamedSharding(small[0], P("x", "y")))
    made = jit(lambda v: jax.lax.with_sharding_constraint(v + 1, NamedSharding(small[1], P("z"))))(there)
    np.testing.assert_array_equal(np.asarray(made), ROWS + 1)


def arrays_move_between_devices() -> None:
    one, other = jax.devices()[1], jax.devices()[2]
    there = jax.device_put(jnp.ones(4), one) + 1
    assert there.devices() == {one}
    moved = jax.device_put(there, other)
    assert moved.devices() == {other}
    np.testing.assert_array_equal(np.asarray(moved), 2)


def empty_arrays_keep_their_sharding() -> None:
    rows = NamedSharding(_mesh(), P("x"))
    empty = np.zeros((8, 0), np.float32)
    there = jax.device_put(empty, rows)
    assert there.sharding == rows and np.asarray(there).shape == (8, 0)
    assert jit(lambda v: v * 2, in_shardings=rows)(jnp.zeros((8, 0))).shape == (8, 0)
    assert jit(lambda v: v * 2, out_shardings=rows)(empty).sharding == rows


def scalars_move_to_meshes() -> None:
    everywhere = NamedSharding(_mesh(), P())
    there = jax.device_put(np.float32(3), jax.devices()[1])
    for scalar in (jnp.float32(3), there, there * 1):
        assert float(jax.device_put(scalar, everywhere)) == 3


def functions_are_exported() -> None:
    exported = jax.export.export(jax.jit(lambda v: v * 2), platforms=["cpu"])(jnp.ones((4, 4)))
    np.testing.assert_array_equal(np.asarray(exported.call(jnp.ones((4, 4)))), np.full((4, 4), 2))


def only_arrays_that_a_result_replaces_are_donated() -> None:
    rows = NamedSharding(_mesh(), P("x"))
    for count, function in ((0, jnp.sum), (1, lambda v: v + 1)):
        given = jax.device_put(ROWS, rows)
        jit(function, donate_argnums=0)(given)
        assert given.is_deleted() == bool(count)
    one, other = jax.device_put(ROWS, rows), jax.device_put(ROWS, rows)
    jit(lambda v, w: v + w, donate_argnums=(0, 1))(one, other)
    assert [one.is_deleted(), other.is_deleted()].count(True) == 1


def constants_are_computed_on_the_cpu() -> None:
    jax.lax.scan(lambda c, v: (c + v.sum(), v), 0.0, np.ones((4, 4), np.float32))
    assert jax.devices("cpu") and jax.devices()[0].platform == jax.default_backend()


def replicated_scalars_are_made_from_host_values() -> None:
    sharding = NamedSharding(_mesh(), P())
    made = jax.make_array_from_callback((), sharding, lambda _: np.int32(7))
    parts = [jax.device_put(np.int32(7), device) for device in sharding.device_set]
    for scalar in (made, jax.make_array_from_single_device_arrays((), sharding, parts)):
        assert int(scalar) == 7 and all(shard.data == 7 for shard in scalar.addressable_shards)


def an_array_is_assembled_from_single_device_arrays() -> None:
    sharding = NamedSharding(_mesh(), P("x", "y"))
    places = sharding.addressable_devices_indices_map(ROWS.shape).items()
    parts = [jax.device_put(ROWS[index], device) for device, index in places]
    whole = jax.make_array_from_single_device_arrays(ROWS.shape, sharding, parts)
    np.testing.assert_array_equal(np.asarray(whole + 1), ROWS + 1)


def a_shard_outlives_its_array() -> None:
    there = jax.device_put(ROWS, NamedSharding(_mesh(), P("x", "y")))
    shards = [(shard.data, shard.index) for shard in there.addressable_shards]
    del there
    for data, index in shards:
        np.testing.assert_array_equal(np.asarray(data + 1), ROWS[index] + 1)


def arrays_that_are_dropped_right_after_a_copy_to_the_host_began_are_copied() -> None:
    for number in range(20):
        given = jnp.full((4,), number) + 1
        given.copy_to_host_async()
        found = np.asarray(given)
        del given
        np.testing.assert_array_equal(found, number + 1)


def operations_on_two_meshes_are_refused() -> None:
    """Then `calls_leave_no_references` runs: the client counts failed responses in another way."""
    one, other = NamedSharding(_mesh(), P("x", "y")), NamedSharding(Mesh(_mesh().devices.ravel(), ("z",)), P("z"))
    constrained = jax.lax.with_sharding_constraint
    try:
        jit(lambda v: constrained(constrained(v, one) + 1, other))(ROWS)
    except Exception as error:
        assert "UNIMPLEMENTED" in str(error) and "PWC0129" in str(error), error
    else:
        raise AssertionError("operations on two meshes ran")


def calls_leave_no_references() -> None:
    """JAX keeps the stack of a call until the server reports that nothing needs it any more."""
    f = jit(lambda v: v + 1)

    def loop() -> None:
        found = jnp.ones(4)
        for _ in range(50):
            found = f(found)
        found.block_until_ready()

    loop()
    for _ in range(2):
        loop()
        gc.collect()
        jnp.ones(3).block_until_ready()
    gc.collect()
    assert sys.getrefcount(loop.__code__) < 60, sys.getrefcount(loop.__code__)


def donated_and_deleted_arrays_are_refused() -> None:
    given, deleted = jnp.ones(8), jnp.ones(8)
    np.testing.assert_array_equal(np.asarray(jit(lambda v: v + 1, donate_argnums=0)(given)), 2)
    deleted.delete()
    for gone in (given, deleted):
        assert gone.is_deleted()
        try:
            np.asarray(gone)
        except RuntimeError:
            continue
        raise AssertionError("a deleted array was read")


def gradients_and_training_work() -> None:
    batch = ROWS / 64

    def loss(w: Any) -> Any:
        return ((batch @ w - 1) ** 2).mean()

    weights = jnp.zeros((8, 1))
    step = jit(lambda w: w - 0.1 * jax.grad(loss)(w), donate_argnums=0)
    first = float(loss(weights))
    for _ in range(20):
        weights = step(weights)
    assert float(loss(weights)) < first


def control_flow_and_random_numbers_work() -> None:
    carried, _ = jax.lax.scan(lambda c, v: (c + v, c), 0.0, jnp.arange(5.0))
    assert float(carried) == 10 and int(jax.lax.while_loop(lambda v: v < 100, lambda v: v * 2, 1)) == 128
    drawn = np.asarray(jax.random.normal(jax.random.key(0), (2,)))
    np.testing.assert_allclose(drawn, [1.6226422, 2.0252647], rtol=1e-6)


def linear_algebra_works() -> None:
    given = ROWS @ ROWS.T + np.eye(8, dtype=np.float32)
    np.testing.assert_allclose(np.asarray(jnp.linalg.eigh(given)[0]), np.linalg.eigvalsh(given), rtol=1e-3, atol=0.05)


def compiled_functions_describe_themselves() -> None:
    compiled = jit(lambda v: v @ v).lower(ROWS).compile()
    np.testing.assert_array_equal(np.asarray(compiled(ROWS)), ROWS @ ROWS)
    assert compiled.cost_analysis()["flops"] > 0 and compiled.memory_analysis().output_size_in_bytes == 256
    assert compiled.as_text()


def host_callbacks_are_refused() -> None:
    try:
        jit(lambda v: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), "float32"), v))(jnp.float32(1))
    except Exception as error:
        assert "callback" in str(error).lower(), error
    else:
        raise AssertionError("a host callback ran")


FEATURES: tuple[Callable[[], None], ...] = (
    devices_are_those_of_the_island,
    values_keep_their_element_type,
    strided_host_arrays_are_read_correctly,
    arrays_are_sharded_and_resharded,
    results_have_the_sharding_that_the_program_states,
    collectives_span_all_devices,
    a_mesh_in_another_order_of_devices_works,
    arrays_move_to_meshes_in_another_order_of_devices,
    functions_take_arrays_on_several_meshes,
    arrays_move_between_devices,
    empty_arrays_keep_their_sharding,
    scalars_move_to_meshes,
    functions_are_exported,
    only_arrays_that_a_result_replaces_are_donated,
    constants_are_computed_on_the_cpu,
    replicated_scalars_are_made_from_host_values,
    an_array_is_assembled_from_single_device_arrays,
    a_shard_outlives_its_array,
    arrays_that_are_dropped_right_after_a_copy_to_the_host_began_are_copied,
    donated_and_deleted_arrays_are_refused,
    operations_on_two_meshes_are_refused,
    calls_leave_no_references,
    gradients_and_training_work,
    control_flow_and_random_numbers_work,
    linear_algebra_works,
    compiled_functions_describe_themselves,
    host_callbacks_are_refused,
)


def main() -> None:
    failed: dict[str, str] = {}
    wanted = sys.argv[1:]
    for feature in FEATURES:
        if wanted and feature.__name__ not in wanted:
            continue
        try:
            feature()
        except Exception as error:
            failed[feature.__name__] = f"{type(error).__name__}: {error}"
    json.dump(failed, sys.stdout)


if __name__ == "__main__":
    main()
