"""Tests adding and removing islands while programs run: other islands keep running, and removed ones leave nothing."""

import gc
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.clusters import becomes, is_alive, pid_of, send, values
from support.codes import code_of
from support.forked_python import processes_from_nothing
from support.proc import children_of, listening, memory_of, open_files_of, ports_of, threads_of
from support.processes import load_file

import pathways as pw
from pathways.api.process import Process, inside_of, process
from pathways.runtime.control import members
from pathways.runtime.launch import local_hosts

jit: Any = jax.jit
X = np.arange(16.0, dtype=np.float32).reshape(4, 4)
MIB = 1 << 20


def stage(island: str | None = None) -> Any:
    """Makes a computation on a new slice, bound to `island` if one is given."""
    place = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2, island=island).mesh("x"), P("x"))
    return jit(lambda x: x * 2 + 1, in_shardings=place, out_shardings=place)


def two_stages() -> Any:
    """Makes a program on two islands, with a result on each."""
    f, g = stage(), stage()

    @pw.program
    def both(x: Any) -> Any:
        x = f(x)
        return x, g(x)

    return both


def on(island: str) -> Any:
    f = stage(island)
    return pw.program(lambda x: f(x))


def is_right(results: Any) -> bool:
    return all((v == w).all() for v, w in zip(values(results), (2 * X + 1, 4 * X + 3), strict=True))


def island_of(array: Any) -> str:
    return str(array.handle.buffer.origin[1])


def island_names() -> set[str]:
    return {island.name for island in pw.islands()}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Process]:
    """Starts the cluster. Yields the state that this process has without a cluster."""
    outer = process()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MALLOC_MMAP_THRESHOLD_", "131072")  # hosts return large freed blocks to the system
        with processes_from_nothing(), pw.cluster(islands=2, devices=2):  # the sample finds hosts by command lines
            yield outer


@pytest.fixture
def two(cluster: Process) -> Iterator[None]:
    """Restores the two islands of the start after the test."""
    yield
    for name in island_names() - {"island0", "island1"}:
        pw.remove_island(name)
    for name in {"island0", "island1"} - island_names():
        pw.add_island(pw.Island(name, devices=2))


@pytest.fixture
def three(two: None) -> None:
    """Adds a third island, on which programs can be placed again."""
    pw.add_island(pw.Island("spare", devices=2))


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
@pytest.mark.usefixtures("three")
def test_runs_in_flight_complete_before_their_island_is_removed(capsys: pytest.CaptureFixture[str]) -> None:
    both = two_stages()
    first, second = both(X)
    stays, goes, pid = island_of(first), island_of(second), pid_of(island_of(second))
    results = [both(X) for _ in range(50)]
    pw.remove_island(goes)
    assert not is_alive(pid) and island_names() == {"island0", "island1", "spare"} - {goes}
    for kept, gone in results:
        np.testing.assert_array_equal(np.asarray(kept), 2 * X + 1)
        assert code_of(np.asarray, gone) == "PWC0922"
    again = both(X)
    assert is_right(again) and island_of(again[0]) == stays and island_of(again[1]) not in (stays, goes)
    assert f"{goes} is lost (it was removed); both is placed again" in capsys.readouterr().err
    assert is_right(both(X)) and not capsys.readouterr().err
    other = two_stages()
    assert is_right(other(X))
    pw.remove_island(island_of(again[1]))
    assert code_of(both, X) == code_of(other, X) == "PWC0513"
    pw.add_island()
    assert is_right(both(X)) and is_right(other(X))


@pytest.mark.usefixtures("two")
def test_removing_an_island_now_fails_its_endless_run() -> None:
    f = stage("island1")

    @pw.program
    def forever(x: Any) -> Any:
        return jax.lax.while_loop(lambda x: x[0, 0] >= 0, f, x)

    result, kept = forever(X), on("island0")(X)
    begun = time.monotonic()
    pw.remove_island("island1", now=True)
    with pytest.raises(pw.PathwaysError, match=r"PWC0922.*island1 was removed from the cluster") as caught:
        np.asarray(result)
    assert "pw.add_island()" in str(caught.value) and time.monotonic() - begun < 10
    np.testing.assert_array_equal(np.asarray(kept), 2 * X + 1)
    assert code_of(forever, X) == "PWC0513"  # its slice is bound to island1


@pytest.mark.usefixtures("two")
def test_arrays_moved_to_another_island_survive_a_removal() -> None:
    there, here, taken = on("island1")(X), on("island0"), on("island0")
    moved, copied = taken(there), np.asarray(there)
    pw.remove_island("island1")
    np.testing.assert_array_equal(np.asarray(moved), 4 * X + 3)
    np.testing.assert_array_equal(copied, 2 * X + 1)
    assert code_of(np.asarray, there) == "PWC0922" == code_of(lambda: np.asarray(here(there)))
    np.testing.assert_array_equal(np.asarray(here(copied)), 4 * X + 3)
    assert code_of(pw.save, [there], os.devnull) == "PWC0922"


@pytest.mark.usefixtures("two")
def test_programs_are_placed_on_an_added_island() -> None:
    first = on("island0")(X)
    made, larger = pw.add_island(), pw.add_island("devices=4")
    assert island_names() == {"island0", "island1", made.name, larger.name} and made.name != larger.name
    assert made == pw.Island(made.name, devices=2) and made.name.startswith("island")
    result = on(made.name)(first)  # transfers between hosts that were not connected before
    assert island_of(result) == made.name
    np.testing.assert_array_equal(np.asarray(result), 4 * X + 3)
    place = NamedSharding(pw.make_virtual_device_set().add_slice(devices=4).mesh("x"), P("x"))
    whole = pw.program(jit(lambda x: x + 1, in_shardings=place, out_shardings=place))(result)
    assert island_of(whole) == larger.name  # the only island with four devices
    np.testing.assert_array_equal(np.asarray(whole), 4 * X + 4)
    assert f"{larger.name} " in str(pw.status())
    pw.remove_island(larger)
    assert f"{larger.name} " not in str(pw.status())


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
@pytest.mark.usefixtures("two")
def test_arrays_of_a_removed_island_stay_lost_when_its_name_is_reused() -> None:
    both = two_stages()
    old = both(X)
    goes = island_of(old[1])
    for devices in (2, 4, 2):
        pw.remove_island(goes)
        assert code_of(np.asarray, old[1]) == "PWC0922"
        assert code_of(pw.remove_island, goes) == "PWC0923"
        pw.add_island(pw.Island(goes, devices=devices))
        assert code_of(np.asarray, old[1]) == "PWC0922"
        again = both(X)
        assert is_right(again) and island_of(again[1]) == goes
        np.testing.assert_array_equal(np.asarray(both(again[0])[0]), 4 * X + 3)
        old = again
    assert is_right((old[0], old[1]))


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each", keep=("False-9",))
@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("now", [False, True])
def test_an_island_is_removed_after_its_host_is_killed_or_frozen(how: signal.Signals, now: bool) -> None:
    both = two_stages()
    first, second = both(X)
    goes, stays = island_of(second), island_of(first)
    results = [both(X) for _ in range(5)]
    pid = pid_of(goes)
    if how == signal.SIGSTOP and not now:
        for result in results:
            np.asarray(result[1])  # else the removal waits until the host is lost
    send(goes, how)
    begun = time.monotonic()
    pw.remove_island(goes, now=now)
    print(f"\n{how.name}, now={now}: removed after {time.monotonic() - begun:.2f} s", end="")
    assert goes not in island_names()
    assert becomes(lambda: not is_alive(pid) and pid not in children_of(os.getpid()))  # a killed process takes a while
    assert code_of(np.asarray, second) in ("PWC0910", "PWC0922")
    np.testing.assert_array_equal(np.asarray(first), 2 * X + 1)
    again = both(X)
    assert is_right(again) and island_of(again[0]) == stays and island_of(again[1]) != goes


@pytest.mark.usefixtures("two")
def test_a_loaded_plan_is_refused_until_its_island_is_added_again(tmp_path: Path) -> None:
    both = two_stages()
    both.lower(X).compile().save(tmp_path / "plan.bin")
    loaded = pw.load(tmp_path / "plan.bin")
    assert is_right(loaded(X))
    pw.remove_island("island1")
    assert code_of(loaded, X) == "PWC0513" and code_of(pw.load, tmp_path / "plan.bin") == "PWC0503"
    pw.add_island(pw.Island("island1", devices=2))
    assert is_right(loaded(X)) and is_right(pw.load(tmp_path / "plan.bin")(X))


@pytest.mark.usefixtures("three")
def test_an_island_whose_host_is_not_restarted_counts_as_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(members, "MAX_STARTS", 0)
    both = two_stages()
    result = both(X)
    goes = island_of(result[1])
    send(goes, signal.SIGKILL)
    assert becomes(lambda: goes not in island_names())
    assert is_right(both(X)) and "its hosts are no longer restarted" in capsys.readouterr().err
    assert code_of(np.asarray, result[1]) == "PWC0910"
    pw.remove_island(goes)
    pw.add_island(pw.Island(goes, devices=2))
    np.testing.assert_array_equal(np.asarray(on(goes)(X)), 2 * X + 1)


def test_invalid_additions_and_removals_of_islands_are_refused(cluster: Process) -> None:
    with inside_of(cluster):
        for change in (pw.add_island, lambda: pw.remove_island("island0")):
            assert code_of(change) == "PWC0923"
    with pw.cluster(islands=1, devices=2) as topology:
        assert [i.name for i in topology.islands] == ["island0"]
        for wrong in ("island0", "island1"):
            assert code_of(pw.remove_island, wrong) == "PWC0923"
        assert code_of(pw.add_island, pw.Island("island0", devices=2)) == "PWC0923"
        assert code_of(pw.add_island, "islands=2,devices=2,name=pair") == "PWC0704"
        assert code_of(pw.add_island, pw.Island("pod", devices=1, hosts=2)) == "PWC0912"
        assert code_of(pw.add_island, "cores=2") == "PWC0704"
        assert pw.islands() == topology.islands


@pytest.mark.usefixtures("two")
def test_adding_an_island_fails_when_its_host_is_killed_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    spawn, before = local_hosts.spawn, children_of(os.getpid())

    def start_and_kill(*args: Any, **named: Any) -> Any:
        monkeypatch.undo()
        process = spawn(*args, **named)
        process.kill()
        return process

    monkeypatch.setattr(local_hosts, "spawn", start_and_kill)
    assert code_of(pw.add_island, "devices=2,name=late") == "PWC0910"
    assert island_names() == {"island0", "island1"} and children_of(os.getpid()) == before
    assert (
        pw.add_island("devices=2,name=late").name == "late" and "late" in island_names() and is_right(two_stages()(X))
    )


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
@pytest.mark.usefixtures("two")
def test_a_program_keeps_running_while_islands_are_added_and_removed() -> None:
    """Two threads add and remove islands concurrently. Runs on the first two islands stay right."""
    both, errors, done = two_stages(), list[Exception](), threading.Event()
    assert is_right(both(X))

    def change() -> None:
        try:
            island = pw.add_island()
            np.testing.assert_array_equal(np.asarray(on(island.name)(X)), 2 * X + 1)
            pw.remove_island(island.name)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=change) for _ in range(2)]
    for thread in threads:
        thread.start()
    ended = threading.Thread(target=lambda: ([t.join() for t in threads], done.set()))
    ended.start()
    count = 0
    while count <= 3 or not done.is_set():
        assert is_right(both(X))
        count += 1
    ended.join()
    assert not errors and island_names() == {"island0", "island1"}


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
@pytest.mark.usefixtures("two")
def test_removed_islands_leave_no_processes_files_ports_or_memory(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("t")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    both = two_stages()
    assert is_right(both(X))
    seen: list[tuple[Any, ...]] = []
    memory: list[list[int]] = []
    used: set[str] = set()
    for _ in range(3):
        island = pw.add_island().name
        large = on(island)(np.ones((1024, 1024), np.float32))
        assert np.asarray(on("island0")(large))[0, 0] == 7
        used |= ports_of(pid_of(island))
        pw.remove_island(island)
        assert is_right(both(X))
        del large
        gc.collect()
        hosts = [pid_of("island0"), pid_of("island1")]
        assert becomes(lambda: not any(t.name == "pathways-start" for t in threading.enumerate()))
        pids = (os.getpid(), *hosts)

        def counted(pids: tuple[int, ...] = pids) -> tuple[Any, ...]:
            return (
                len(children_of(os.getpid())),
                [len(ports_of(pid)) for pid in pids],
                [len(open_files_of(pid)) for pid in pids],
                [threads_of(pid) for pid in pids],
                len(list(folder.glob("*"))),
            )

        becomes(lambda counted=counted: not seen or counted()[:2] == seen[0][:2])  # loops close streams a moment later
        seen.append(counted())
        memory.append([memory_of(pid) for pid in pids])
    print("\nchildren, ports, files, threads, folders:", *seen, sep="\n  ")
    print("MiB:", [[size // MIB for size in sizes] for sizes in memory])
    assert used and not used & listening()
    assert seen[-1][:2] == seen[0][:2] and seen[-1][4] == seen[0][4]
    for early, late in (*zip(seen[0][2], seen[-1][2], strict=True), *zip(seen[0][3], seen[-1][3], strict=True)):
        assert late <= early + 2
    for early, late in zip(memory[0], memory[-1], strict=True):
        assert late < early + 24 * MIB


def events_of(seed: int, steps: int) -> dict[str, list[int]]:
    """Draws the steps at which islands are added, removed or killed; two exist at the start."""
    rng, count, found = random.Random(seed), 2, dict[str, list[int]]()
    for step in sorted(rng.sample(range(1, steps - 1), 2)):
        kind = rng.choice(["add_at", "remove_at", "kill_at"] if count > 1 else ["add_at"])
        count += 1 if kind == "add_at" else -1
        found.setdefault(kind, []).append(step)
    return found


@pytest.mark.long("training is compared with plain JAX: 5 to 40 s each", keep=("2",))
@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("seed", range(5))
def test_training_while_islands_are_added_and_removed_equals_plain_jax(seed: int, root: Path) -> None:
    sample, steps = load_file(root / "samples" / "elastic.py"), 8
    events, recover = events_of(seed, steps), ("arrays", "snapshot")[seed % 2]
    losses, schedule, happened = sample.train(steps=steps, recover=recover, snapshot_every=4, **events)
    print(f"\n{events}, from {recover}: islands {schedule}, {happened}", end="")
    assert len(losses) == len(schedule) == steps and len(happened) == 2
    np.testing.assert_allclose(losses, sample.plain_losses(schedule), rtol=1e-5)
