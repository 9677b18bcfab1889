"""Islands in processes of their own give what they give in this one, bit by bit."""

import gc
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.clusters import becomes, code_of, this_cluster, values
from support.processes import ROOT, load_file, pwc_here

import pathways as pw
from pathways.api.process import Process, inside_of, process
from pathways.dialect.plan.part import edges_of
from pathways.dialect.topology import parse_topology
from pathways.runtime.client.cluster import Cluster
from pathways.runtime.client.remote_host import RemoteHost

jit: Any = jax.jit
TOPOLOGY = "islands=3,devices=8"
X = np.arange(16.0, dtype=np.float32).reshape(4, 4)
DTYPES = ("bool", "int8", "uint16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
          "complex128", "float8_e4m3fn", "float8_e5m2")  # fmt: skip

SLICES = pw.make_virtual_device_set()
HERE = NamedSharding(SLICES.add_slice(devices=8).mesh(("x", "y"), (4, 2)), P("x", None))
THERE = NamedSharding(SLICES.add_slice(devices=4).mesh(("x", "y"), (2, 2)), P(None, "y"))
f = jit(lambda x: x * 2 + 1, in_shardings=HERE, out_shardings=HERE)
g = jit(lambda x: x @ x.T, in_shardings=THERE, out_shardings=THERE)


@pytest.fixture(scope="module", autouse=True)
def embedded() -> Iterator[Process]:
    """Starts the cluster; gives this process as it is without."""
    outer = process()
    with pw.cluster(TOPOLOGY):
        yield outer


def chain(x: Any) -> Any:
    for _ in range(3):
        x = g(f(x)) / 100
    return x, f(x)


def equal(outer: Process, program: Any, *arguments: Any) -> Any:
    """Runs a program here and on the cluster, which must give the same bits; returns the cluster's results."""
    with inside_of(outer):
        want = values(jax.tree.leaves(program.lower(*arguments).compile(TOPOLOGY)(*arguments)))
    got = program.lower(*arguments).compile()(*arguments)
    for ours, theirs in zip(values(jax.tree.leaves(got)), want, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes()
    return got


@pytest.mark.parametrize("name", ["train_lm", "mixture_of_experts"])
def test_samples_train_as_plain_jax(name: str) -> None:
    losses = load_file(ROOT / "samples" / f"{name}.py").train(2)
    assert len(losses) == 2 and all(abs(ours - plain) < 1e-3 * abs(plain) for ours, plain in losses)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_crosses(dtype: str, embedded: Process) -> None:
    with jax.enable_x64(True):
        x = np.arange(16).reshape(4, 4).astype(getattr(ml_dtypes, dtype, None) or dtype)
        there = jit(lambda v: (v, v.T), in_shardings=THERE, out_shardings=THERE)
        here = jit(lambda v: v[::-1], in_shardings=HERE, out_shardings=HERE)
        equal(embedded, pw.program(lambda v: there(here(v))), x)


SPECS = [P(), P("x"), P("y"), P("x", "y"), P("y", "x"), P(("x", "y")), P(None, ("x", "y")), P(None, "x")]


@pytest.mark.parametrize(("source", "target"), list(product(range(0, len(SPECS), 2), range(1, len(SPECS), 2))))
def test_arrays_are_cut_and_joined_on_the_way(source: int, target: int, embedded: Process) -> None:
    x = np.random.default_rng(source).standard_normal((16, 8)).astype(np.float32)
    a, b = NamedSharding(HERE.mesh, SPECS[source]), NamedSharding(THERE.mesh, SPECS[target])
    first = jit(lambda v: v + 1, in_shardings=a, out_shardings=a)
    second = jit(lambda v: v * 2, in_shardings=b, out_shardings=b)
    program = pw.program(lambda v: first(second(first(v))))
    equal(embedded, program, x)
    plan = program.lower(x).compile().plan
    assert len(edges_of(plan)) == 2


def test_what_is_sent_and_then_donated_arrives_whole() -> None:
    """Results that are on their way to another island when a later run overwrites them."""
    size = 512
    make = pw.program(lambda x: (kept := f(x), g(kept)))
    take = pw.program(lambda x: f(x) * 0, donate_argnums=0)
    x = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    kept, want = make(x)
    want.block_until_ready()
    for _ in range(5):
        kept, sent = make(x)
        take(kept)
        np.testing.assert_array_equal(np.asarray(sent), np.asarray(want))
        assert code_of(np.asarray, kept) == "PWC0207"


def test_a_donated_array_that_is_held_elsewhere_is_copied() -> None:
    take = pw.program(lambda x: f(x), donate_argnums=0)
    x = pw.program(lambda x: f(x))(X)
    other = x.copy()
    y = take(x)
    np.testing.assert_array_equal(np.asarray(other), X * 2 + 1)
    np.testing.assert_array_equal(np.asarray(y), X * 4 + 3)
    assert code_of(np.asarray, x) == "PWC0207"


def test_a_constant_that_is_returned_may_be_donated() -> None:
    held = np.arange(4096, dtype=np.float32).reshape(64, 64)
    made = pw.program(lambda x: (f(x), jax.device_put(held, HERE)))
    take = pw.program(lambda v: jit(lambda w: w * 0, in_shardings=HERE, out_shardings=HERE)(v), donate_argnums=0)
    for _ in range(3):
        _, constant = made(X)
        np.testing.assert_array_equal(np.asarray(constant), held)
        take(constant).block_until_ready()


def test_arguments_that_are_returned_and_results_of_two_names() -> None:
    program = pw.program(lambda x, y: (x, y, x, f(y), jax.device_put(x, HERE)))
    x = pw.program(lambda x: f(x))(X)
    one, two, three, four, five = program(x, X)
    for found, want in ((one, X * 2 + 1), (two, X), (three, X * 2 + 1), (four, X * 2 + 1), (five, X * 2 + 1)):
        np.testing.assert_array_equal(np.asarray(found), want)


def test_shards_are_read_one_by_one() -> None:
    x = pw.program(lambda x: f(x))(np.arange(32, dtype=np.float32).reshape(8, 4))
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), np.asarray(x)[shard.index])


def test_an_array_moves_to_where_another_program_wants_it() -> None:
    x = pw.program(lambda x: f(x))(X)
    np.testing.assert_array_equal(np.asarray(pw.program(lambda v: g(v))(x)), (X * 2 + 1) @ (X * 2 + 1).T)


def test_several_threads_call_programs_at_once() -> None:
    one, two = pw.program(chain), pw.program(lambda x: (g(x), f(g(x))))
    want = [values(one(X)), values(two(X))]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(10):
            for program, expected in zip((one, two), want, strict=True):
                if any((a != b).any() for a, b in zip(values(program(X)), expected, strict=True)):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_hosts_keep_nothing_that_is_dropped() -> None:
    program = pw.program(chain)
    results = [program(X) for _ in range(30)]
    values(results[-1])
    hosts = this_cluster().hosts.values()
    assert becomes(lambda: sum(h.arrays for h in hosts) >= 60)
    results.clear()
    gc.collect()
    assert becomes(lambda: sum(h.arrays for h in hosts) == 0)


def test_sequential_dispatch_gives_the_same() -> None:
    compiled = pw.program(chain).lower(X).compile(dispatch="sequential")
    for ours, theirs in zip(values(compiled(X)), values(pw.program(chain)(X)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_what_looks_at_steps_is_refused(tmp_path: Path) -> None:
    program = pw.program(chain)
    program(X)

    def faulty() -> None:
        with pw.testing.fault("raise"):
            program(X)

    compiled = program.lower(X).compile()
    assert code_of(faulty) == "PWC0912"
    compiled.save(tmp_path / "plan.bin")
    assert values(program(X))[0].any()
    with pytest.raises(pw.PathwaysError, match="saving executables"):
        compiled.save(tmp_path / "plan.bin", executables=True)


def test_plans_of_other_topologies_are_refused(embedded: Process) -> None:
    with inside_of(embedded):
        compiled = pw.program(chain).lower(X).compile("islands=2,devices=16")
    with pytest.raises(pw.PathwaysError, match="a cluster of island0"):
        pw.Compiled(compiled.plan)


def test_the_command_line_runs_a_plan_on_a_cluster_of_its_own(tmp_path: Path, embedded: Process) -> None:
    plan = str(tmp_path / "plan.bin")
    with inside_of(embedded):
        pw.program(chain).lower(X).compile("islands=2,devices=8").save(plan)
        code, stdout, _ = pwc_here("run", plan, "--cluster", "islands=2,devices=8", "--reference")
        assert code == 0 and "reference: equal" in stdout
        code, _, stderr = pwc_here("run", plan, "--cluster", "islands=2,devices=2")
        assert code == 5 and "PWC0503" in stderr


def test_a_program_is_compiled_anew_for_another_machine(embedded: Process) -> None:
    program = pw.program(chain)
    want = values(program(X))
    with inside_of(embedded):
        for ours, theirs in zip(values(program(X)), want, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert "signatures compiled: 2" in repr(program)
    numbers = {Process(embedded.platform, embedded.controller).number for _ in range(5)}
    assert len(numbers) == 5  # an address would be used again


def test_devices_that_every_process_would_take_are_refused() -> None:
    assert code_of(Cluster, parse_topology("islands=2,devices=1"), "gpu") == "PWC0912"


def test_the_status_shows_islands_and_bytes() -> None:
    x = pw.program(lambda x: f(x))(X)
    x.block_until_ready()
    shown = {island.name: island for island in pw.status().islands}
    assert set(shown) == {"island0", "island1", "island2"}
    held = [island for island in shown.values() if island.held]
    assert held and held[0].devices == 8


def test_an_array_moves_from_host_to_host_and_within_one(monkeypatch: pytest.MonkeyPatch) -> None:
    x = pw.program(lambda x: f(x))(X)
    values([x])
    fetched: list[int] = []
    fetch = RemoteHost.fetch
    monkeypatch.setattr(RemoteHost, "fetch", lambda *a: (fetched.append(1), fetch(*a))[1])
    other = NamedSharding(HERE.mesh, P("y", "x"))
    turned = jit(lambda v: v + 1, in_shardings=other, out_shardings=other)
    elsewhere, here = pw.program(lambda x: g(x))(x), pw.program(lambda x: turned(x))(x)
    assert not fetched
    for ours, want in zip(values((elsewhere, here)), ((2 * X + 1) @ (2 * X + 1).T, 2 * X + 2), strict=True):
        np.testing.assert_array_equal(ours, want)
    assert len(fetched) == 2


def test_a_client_leaves_the_devices_and_comes_back(tmp_path: Path) -> None:
    with pw.Client("alice") as alice:
        made = pw.program(chain)(X)
        want = values(made)
        hosts = list(this_cluster().hosts.values())
        for folder in (None, tmp_path / "suspended"):
            assert alice.suspend(folder) > 0
            assert becomes(lambda: sum(h.arrays for h in hosts) <= 2)  # constants of other tests
            with pytest.raises(pw.PathwaysError, match="suspended"):
                np.asarray(made[0])
            alice.resume()
            for ours, theirs in zip(values(made), want, strict=True):
                np.testing.assert_array_equal(ours, theirs)
        values(pw.program(lambda x: g(x))(made[1]))


def test_memory_of_what_goes_between_hosts_is_counted(embedded: Process) -> None:
    """A limit that one process just meets is too low where values are also offered, and asked for."""
    one, other = (NamedSharding(pw.make_virtual_device_set().add_slice(devices=1).mesh("x"), P()) for _ in range(2))
    f, g = (jit(lambda x: x + 1, in_shardings=s, out_shardings=s) for s in (one, other))
    program, x = pw.program(lambda x: f(g(x))), np.zeros(1000, np.float32)
    with inside_of(embedded):
        plan = program.lower(x).compile("islands=2,devices=1").plan
    assert len(edges_of(plan)) == 1
    peak = max(s.peak_bytes for s in plan.streams)
    for memory, code in ((peak, "PWC0506"), (peak + 4000, "")):
        with pw.cluster(f"islands=2,devices=1,memory={memory}"):
            assert code_of(lambda: values([program(x)])) == code


def test_arrays_of_another_machine_are_taken_through_this_process(embedded: Process) -> None:
    program, taking = pw.program(lambda x: g(f(x))), pw.program(lambda x: f(x), donate_argnums=0)
    want = (2 * X + 1) @ (2 * X + 1).T
    with inside_of(embedded):
        outside = program(X)
    inside = program(X)
    np.testing.assert_array_equal(np.asarray(taking(outside)), 2 * want + 1)
    with inside_of(embedded):
        np.testing.assert_array_equal(np.asarray(taking(inside)), 2 * want + 1)


def test_a_client_closes_though_a_loop_of_its_own_holds_up_its_callbacks() -> None:
    """The loop is over two islands, and can be ended; what calls back behind it then has its turn."""
    here, there = (NamedSharding(pw.make_virtual_device_set().add_slice(devices=1).mesh("x"), P()) for _ in range(2))
    add, other = (jax.jit(lambda x: x + 1, in_shardings=h) for h in (here, there))
    seen: list[float] = []

    def says(x: Any) -> Any:
        jax.debug.callback(lambda v: seen.append(float(v[0])), x)
        return x

    calling = jax.jit(says, in_shardings=here)
    endless = pw.program(lambda x: jax.lax.while_loop(lambda c: add(c)[0] > -1, lambda c: other(add(c)), x))
    x = np.ones(2, np.float32)
    with pw.Client("closing"):
        endless(x)
        pw.program(lambda x: calling(x))(x)
    assert seen == [1.0]
