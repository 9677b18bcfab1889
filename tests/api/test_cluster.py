"""Tests programs on a cluster whose islands are separate processes: results have the same bits as in one process.

Also tests donation, freeing, suspension and refused uses on a cluster.
"""

import contextlib
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
from support.clusters import arrays_on_hosts, becomes, this_cluster, values
from support.codes import code_of
from support.processes import ROOT, load_file, pwc_here
from support.ways import WAYS, cluster_by

import pathways as pw
from pathways.api.process import Process, inside_of, process, process_policy
from pathways.dialect.plan.part import edges_of
from pathways.dialect.topology import parse_topology
from pathways.runtime.client.remote.attached import Attached
from pathways.runtime.client.remote.cluster import Cluster
from pathways.runtime.client.remote.remote_island import RemoteIsland

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


@pytest.fixture(scope="module", autouse=True, params=WAYS)
def embedded(request: pytest.FixtureRequest) -> Iterator[Process]:
    """Starts the cluster. Yields the state that this process has without a cluster."""
    outer = process()
    with cluster_by(request.param, TOPOLOGY):
        yield outer


def chain(x: Any) -> Any:
    for _ in range(3):
        x = g(f(x)) / 100
    return x, f(x)


def run_and_compare(outer: Process, program: Any, *arguments: Any) -> Any:
    """Runs a program in this process and on the cluster. Asserts equal bits; returns the cluster's results."""
    with inside_of(outer):
        want = values(jax.tree.leaves(program.lower(*arguments).compile(TOPOLOGY)(*arguments)))
    got = program.lower(*arguments).compile()(*arguments)
    for ours, theirs in zip(values(jax.tree.leaves(got)), want, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes()
    return got


@pytest.mark.long("training is compared with plain JAX: 5 to 40 s each", keep=("mixture_of_experts",))
@pytest.mark.parametrize("name", ["train_lm", "mixture_of_experts"])
def test_sample_losses_match_plain_jax(name: str) -> None:
    losses = load_file(ROOT / "samples" / f"{name}.py").train(2)
    assert len(losses) == 2 and all(abs(ours - plain) < 1e-3 * abs(plain) for ours, plain in losses)


@pytest.mark.long("more element types of the same kind", keep=("bool", "bfloat16", "int8", "complex64"))
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_is_transferred_between_islands(dtype: str, embedded: Process) -> None:
    with jax.enable_x64(True):
        x = np.arange(16).reshape(4, 4).astype(getattr(ml_dtypes, dtype, None) or dtype)
        there = jit(lambda v: (v, v.T), in_shardings=THERE, out_shardings=THERE)
        here = jit(lambda v: v[::-1], in_shardings=HERE, out_shardings=HERE)
        run_and_compare(embedded, pw.program(lambda v: there(here(v))), x)


SPECS = [P(), P("x"), P("y"), P("x", "y"), P("y", "x"), P(("x", "y")), P(None, ("x", "y")), P(None, "x")]


@pytest.mark.long("more pairs of shardings of the same kind", keep=("0-*",))
@pytest.mark.parametrize(("source", "target"), list(product(range(0, len(SPECS), 2), range(1, len(SPECS), 2))))
def test_arrays_are_resharded_during_transfers(source: int, target: int, embedded: Process) -> None:
    x = np.random.default_rng(source).standard_normal((16, 8)).astype(np.float32)
    a, b = NamedSharding(HERE.mesh, SPECS[source]), NamedSharding(THERE.mesh, SPECS[target])
    first = jit(lambda v: v + 1, in_shardings=a, out_shardings=a)
    second = jit(lambda v: v * 2, in_shardings=b, out_shardings=b)
    program = pw.program(lambda v: first(second(first(v))))
    run_and_compare(embedded, program, x)
    plan = program.lower(x).compile().plan
    assert len(edges_of(plan)) == 2


def test_an_array_donated_while_it_is_sent_arrives_intact() -> None:
    """A later run overwrites the array while it is still being sent to another island."""
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


def test_donating_an_array_leaves_a_copy_of_it_intact() -> None:
    take = pw.program(lambda x: f(x), donate_argnums=0)
    x = pw.program(lambda x: f(x))(X)
    other = x.copy()
    y = take(x)
    np.testing.assert_array_equal(np.asarray(other), X * 2 + 1)
    np.testing.assert_array_equal(np.asarray(y), X * 4 + 3)
    assert code_of(np.asarray, x) == "PWC0207"


def test_a_returned_constant_can_be_donated() -> None:
    held = np.arange(4096, dtype=np.float32).reshape(64, 64)
    made = pw.program(lambda x: (f(x), jax.device_put(held, HERE)))
    take = pw.program(lambda v: jit(lambda w: w * 0, in_shardings=HERE, out_shardings=HERE)(v), donate_argnums=0)
    for _ in range(3):
        _, constant = made(X)
        np.testing.assert_array_equal(np.asarray(constant), held)
        take(constant).block_until_ready()


def test_a_program_can_return_its_arguments_and_duplicate_results() -> None:
    program = pw.program(lambda x, y: (x, y, x, f(y), jax.device_put(x, HERE)))
    x = pw.program(lambda x: f(x))(X)
    one, two, three, four, five = program(x, X)
    for found, want in ((one, X * 2 + 1), (two, X), (three, X * 2 + 1), (four, X * 2 + 1), (five, X * 2 + 1)):
        np.testing.assert_array_equal(np.asarray(found), want)


def test_a_program_that_computes_nothing_runs_on_a_cluster() -> None:
    nothing: Any = pw.program(lambda *_: {"none": None})
    assert nothing() == {"none": None} and nothing(np.float32(1)) == {"none": None}


def test_shards_can_be_read_individually() -> None:
    x = pw.program(lambda x: f(x))(np.arange(32, dtype=np.float32).reshape(8, 4))
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), np.asarray(x)[shard.index])


def test_an_array_moves_to_the_slice_of_the_program_that_reads_it() -> None:
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


def test_hosts_free_arrays_whose_handles_are_dropped() -> None:
    program = pw.program(chain)
    results = [program(X) for _ in range(30)]
    values(results[-1])
    assert becomes(lambda: arrays_on_hosts() >= 60)
    results.clear()
    gc.collect()
    assert becomes(lambda: arrays_on_hosts() == 0)


def test_sequential_dispatch_gives_the_same_results() -> None:
    compiled = pw.program(chain).lower(X).compile(dispatch="sequential")
    for ours, theirs in zip(values(compiled(X)), values(pw.program(chain)(X)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_faults_without_a_computation_and_saved_executables_are_refused(tmp_path: Path) -> None:
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


def test_pwc_run_starts_a_cluster_for_the_plan(tmp_path: Path, embedded: Process) -> None:
    plan = str(tmp_path / "plan.bin")
    with inside_of(embedded):
        pw.program(chain).lower(X).compile("islands=2,devices=8").save(plan)
        code, stdout, _ = pwc_here("run", plan, "--cluster", "islands=2,devices=8", "--reference")
        assert code == 0 and "reference: equal" in stdout
        code, _, stderr = pwc_here("run", plan, "--cluster", "islands=2,devices=2")
        assert code == 5 and "PWC0503" in stderr


def test_a_program_is_compiled_again_for_another_machine(embedded: Process) -> None:
    program = pw.program(lambda x: chain(x))
    want = values(program(X))
    with inside_of(embedded):
        for ours, theirs in zip(values(program(X)), want, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert "signatures compiled: 2" in repr(program)
    numbers = {Process(embedded.platform, embedded.controller).number for _ in range(5)}
    assert len(numbers) == 5  # an id() of a freed object would be used again


def test_a_local_cluster_of_two_gpu_islands_is_refused() -> None:
    assert code_of(Cluster, parse_topology("islands=2,devices=1"), "gpu", process_policy()) == "PWC0912"


def test_the_status_shows_islands_and_bytes() -> None:
    x = pw.program(lambda x: f(x))(X)
    x.block_until_ready()
    shown = {island.name: island for island in pw.status().islands}
    assert set(shown) == {"island0", "island1", "island2"}
    held = [island for island in shown.values() if island.held]
    assert held and held[0].devices == 8


def test_arrays_move_between_slices_without_a_fetch_by_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    x = pw.program(lambda x: f(x))(X)
    values([x])
    fetched: list[int] = []
    fetch = RemoteIsland.fetch
    monkeypatch.setattr(RemoteIsland, "fetch", lambda *a: (fetched.append(1), fetch(*a))[1])
    other = NamedSharding(HERE.mesh, P("y", "x"))
    turned = jit(lambda v: v + 1, in_shardings=other, out_shardings=other)
    elsewhere, here = pw.program(lambda x: g(x))(x), pw.program(lambda x: turned(x))(x)
    assert not fetched
    for ours, want in zip(values((elsewhere, here)), ((2 * X + 1) @ (2 * X + 1).T, 2 * X + 2), strict=True):
        np.testing.assert_array_equal(ours, want)
    assert len(fetched) == 2


def test_a_client_suspends_and_resumes_its_arrays(tmp_path: Path) -> None:
    with pw.Client("alice") as alice:
        made = pw.program(chain)(X)
        want = values(made)
        for folder in (None, tmp_path / "suspended"):
            assert alice.suspend(folder) > 0
            assert becomes(lambda: arrays_on_hosts() <= 2)  # constants of other tests remain
            with pytest.raises(pw.PathwaysError, match="suspended"):
                np.asarray(made[0])
            alice.resume()
            for ours, theirs in zip(values(made), want, strict=True):
                np.testing.assert_array_equal(ours, theirs)
        values(pw.program(lambda x: g(x))(made[1]))


@pytest.mark.long("memory is measured over many runs: 7 s")
def test_values_sent_between_hosts_count_toward_the_memory_limit(embedded: Process) -> None:
    """A limit that suffices in one process is too low on two hosts, which also buffer the values that they exchange."""
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


def test_programs_take_arrays_from_another_machine(embedded: Process) -> None:
    program, taking = pw.program(lambda x: g(f(x))), pw.program(lambda x: f(x), donate_argnums=0)
    want = (2 * X + 1) @ (2 * X + 1).T
    with inside_of(embedded):
        outside = program(X)
    inside = program(X)
    np.testing.assert_array_equal(np.asarray(taking(outside)), 2 * want + 1)
    with inside_of(embedded):
        np.testing.assert_array_equal(np.asarray(taking(inside)), 2 * want + 1)


@pytest.mark.long("limits of time run out: 6 s")
def test_closing_a_client_cancels_its_loop_and_runs_its_callbacks() -> None:
    """The loop spans two islands, so it can be cancelled. The callback program enqueued after it then runs."""
    here, there = (NamedSharding(pw.make_virtual_device_set().add_slice(devices=1).mesh("x"), P()) for _ in range(2))
    add, other = (jax.jit(lambda x: x + 1, in_shardings=h) for h in (here, there))
    seen: list[float] = []

    def note_value(x: Any) -> Any:
        jax.debug.callback(lambda v: seen.append(float(v[0])), x)
        return x

    calling = jax.jit(note_value, in_shardings=here)
    endless = pw.program(lambda x: jax.lax.while_loop(lambda c: add(c)[0] > -1, lambda c: other(add(c)), x))
    x = np.ones(2, np.float32)
    with pw.Client("closing"):
        endless(x)
        pw.program(lambda x: calling(x))(x)
    assert seen == [1.0]


def test_a_cluster_is_left_while_another_thread_calls_programs() -> None:
    """New calls are refused meanwhile; otherwise the block would never end."""
    program = pw.program(lambda x: jax.jit(lambda v: v + 1)(x))
    began, left, codes = threading.Event(), threading.Event(), set[str]()

    def call() -> None:
        while not left.is_set():
            codes.add(code_of(program, np.float32(1)))
            began.set()

    thread = threading.Thread(target=call)
    with pw.cluster(islands=1, devices=1):
        thread.start()
        assert began.wait(60)
    left.set()
    thread.join(60)
    assert not thread.is_alive() and codes <= {"", "PWC0509"}


@pytest.mark.long("a limit of time runs out: 10 s", keep=("own-own",))
@pytest.mark.parametrize("way", ["own", "shared"])
def test_a_thread_that_connects_when_the_block_ends_is_refused(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread has connected to the host, or is about to, when the client's loop and its ticket end."""
    connecting, ended, codes = threading.Event(), threading.Event(), list[str]()
    patched = "_connected" if way == "own" else "_connect"

    def use(machine: Attached, name: str) -> None:
        codes.append(code_of(machine.host, name))

    with pw.cluster(islands=1, devices=1) as topology:
        name = topology.islands[0].name
        machine = this_cluster()
        with contextlib.ExitStack() as stack:
            if way == "shared":
                stack.enter_context(pw.connect(machine.address, name="second"))
                machine = this_cluster()
            machine.host(name)
            del machine.hosts[name]
            connect = getattr(machine, patched)

            def late(*arguments: Any) -> Any:
                made = connect(*arguments) if way == "own" else None
                connecting.set()
                assert ended.wait(60)
                return connect(*arguments) if made is None else made

            monkeypatch.setattr(machine, patched, late)
            thread = threading.Thread(target=use, args=(machine, name))
            thread.start()
            assert connecting.wait(60)
        if way == "shared":
            ended.set()
            thread.join(60)
    ended.set()
    thread.join(60)
    assert codes == ["PWC0509"]


def test_calls_after_the_end_of_a_cluster_are_refused() -> None:
    """A call of another thread may be at any of these points when the block ends."""
    with pw.cluster(islands=1, devices=1):
        result = pw.program(lambda x: jax.jit(lambda v: v + 1)(x))(np.float32(1))
        machine = process().machine
    assert isinstance(machine, Attached)
    island = machine.topology.islands[0].name
    for use in (lambda: machine.host(island), lambda: machine.get_ready([], "main"), lambda: machine.ask("status")):
        assert code_of(use) == "PWC0509"
    with pytest.raises(pw.PathwaysError, match="read results") as caught:
        np.asarray(result)
    assert caught.value.code == "PWC0509"
