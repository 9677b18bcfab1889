"""Tests snapshots of a cluster: hosts write and read their arrays, and a failed save leaves the last snapshot.

Clusters of other topologies, and single processes, restore the same snapshots.
"""

import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from msgspec import structs
from support.clusters import becomes, is_alive, is_replaced, pid_of, send, this_cluster
from support.codes import code_of
from support.full_disk import full_disk
from support.saved_trees import DTYPES, MESHES, bits, host_values, like, placed, shape_of, sharding_of

import pathways as pw
from pathways.api import snapshots
from pathways.api.process import Process, inside_of, process
from pathways.dialect import array_files
from pathways.runtime.client.remote.remote_host import RemoteHost
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.encoding import encode

HERE = NamedSharding(MESHES[0], P("x", "y"))
THERE = NamedSharding(MESHES[1], P("x"))
LARGE = np.arange(1 << 18, dtype=np.float32).reshape(512, 512)


@pytest.fixture(scope="module", autouse=True)
def embedded() -> Iterator[Process]:
    """Starts the cluster. Yields the state that this process has without a cluster."""
    outer = process()
    with pw.cluster("islands=2,devices=8"):
        yield outer


@pytest.fixture
def all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "LARGE_SNAPSHOT_BYTES", 0)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[m.Message]]:
    """Records all messages to and from hosts."""
    said: list[m.Message] = []
    post, receive = RemoteHost.post, RemoteHost.receive

    def note_post(self: RemoteHost, message: m.Message) -> None:
        said.append(message)
        post(self, message)

    def note_receive(self: RemoteHost, message: m.Message) -> None:
        said.append(message)
        receive(self, message)

    monkeypatch.setattr(RemoteHost, "post", note_post)
    monkeypatch.setattr(RemoteHost, "receive", note_receive)
    yield said
    monkeypatch.undo()


def bytes_of(messages: list[m.Message]) -> int:
    return sum(len(payload) + len(blob) for _, payload, blob in map(encode, messages))


def array_folders(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.arrays-*"))


def test_large_arrays_do_not_pass_through_the_client(tmp_path: Path, sent: list[m.Message]) -> None:
    path = tmp_path / "state"
    tree = {"a": placed("float32", LARGE, HERE), "b": placed("float32", LARGE + 1, THERE)}
    jax.tree.map(lambda a: a.block_until_ready(), tree)
    sent.clear()
    pw.save(tree, path)
    saved = [x for x in sent if isinstance(x, m.WriteArray)]
    assert len(saved) == 2 and bytes_of(sent) < 4096
    sent.clear()
    back = pw.restore(tree, path)
    moved = pw.restore({"a": like(LARGE, THERE), "b": like(LARGE, HERE)}, path)
    assert len([x for x in sent if isinstance(x, m.ReadArray)]) == 4
    assert not [x for x in sent if isinstance(x, m.PutArray | m.FetchArray)] and bytes_of(sent) < 1 << 16
    for one in (back, moved):
        assert {k: bits(v) for k, v in one.items()} == {k: bits(v) for k, v in tree.items()}


@pytest.mark.long("more element types of the same kind", keep=("bool", "uint8", "key<fry>", "bfloat16", "complex64"))
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_is_restored_on_a_cluster_and_in_one_process(
    dtype: str, tmp_path: Path, all_large: None, embedded: Process
) -> None:
    """The cluster and one process restore each other's snapshots, and write identical files."""
    with jax.enable_x64(True):
        value = host_values(dtype, (4, 8), 1)
        ours = placed(dtype, value, HERE)
        pw.save({"w": ours}, tmp_path / "cluster")
        with inside_of(embedded):
            theirs = placed(dtype, value, HERE)
            pw.save({"w": theirs}, tmp_path / "process")
            there = pw.restore({"w": like(theirs, THERE)}, tmp_path / "cluster")["w"]
            host = pw.restore({"w": like(theirs)}, tmp_path / "cluster")["w"]
            assert bits(there) == bits(host) == bits(theirs) and isinstance(there, pw.Array)
        here = pw.restore({"w": like(ours, THERE)}, tmp_path / "process")["w"]
        assert bits(here) == bits(ours) == bits(pw.restore({"w": ours}, tmp_path / "process")["w"])
        found = [
            {str(p.relative_to(f)): p.read_bytes() for p in f.rglob("*") if p.is_file()}
            for name in ("cluster", "process")
            for f in array_folders(tmp_path / name)
        ]
        assert found[0] == found[1] and len(found) == 2


@pytest.mark.long("more random examples of the same kind", keep=("3", "0"))
@pytest.mark.parametrize("seed", range(6))
def test_random_trees_are_restored_on_a_cluster_and_in_one_process(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embedded: Process
) -> None:
    monkeypatch.setattr(snapshots, "LARGE_SNAPSHOT_BYTES", 64)
    rng, path = random.Random(seed), tmp_path / "state"
    tree: dict[str, Any] = {}
    for number in range(5):
        dtype, shape = rng.choice(("float32", "bfloat16", "int4", "bool", "complex64", "key<fry>")), shape_of(rng)
        tree[str(number)] = placed(dtype, host_values(dtype, shape, number), sharding_of(rng, len(shape)))
    want = {k: bits(v) for k, v in tree.items()}
    pw.save(tree, path)

    def check_restore(*, known: bool) -> None:
        wanted: dict[str, Any] = {}
        for name, array in tree.items():
            choices = [like(array), like(array, sharding_of(rng, array.ndim)), array if known else like(array)]
            wanted[name] = rng.choice(choices)
        back = pw.restore(wanted, path)
        assert {k: bits(v) for k, v in back.items()} == want
        pw.save(back, path)

    for _ in range(2):
        check_restore(known=True)
    with inside_of(embedded):
        check_restore(known=False)
        check_restore(known=True)  # `tree` is on devices that this process does not have
    check_restore(known=False)


@pytest.mark.long("another cluster is started for it: 3 s")
def test_a_cluster_of_another_topology_restores_a_snapshot(tmp_path: Path) -> None:
    """The second cluster has more islands, with fewer devices. Each cluster restores the snapshot of the other."""
    path = tmp_path / "state"
    tree = {"a": placed("float32", LARGE, HERE), "b": placed("float32", LARGE + 1, THERE)}
    pw.save(tree, path)
    with pw.cluster("islands=3,devices=4"):
        for wanted in (tree, {"a": like(LARGE, THERE), "b": like(LARGE, HERE)}):
            back = pw.restore(wanted, path)
            np.testing.assert_array_equal(np.asarray(back["a"]), LARGE)
            np.testing.assert_array_equal(np.asarray(back["b"]), LARGE + 1)
        pw.save(back, tmp_path / "next")
    back = pw.restore(tree, tmp_path / "next")
    np.testing.assert_array_equal(np.asarray(back["b"]), LARGE + 1)


def test_runs_continue_while_a_host_writes_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs overwrite the array that is being written. The snapshot has its values from before."""
    monkeypatch.setattr(array_files, "MAX_CHUNK_BYTES", 1024)
    monkeypatch.setattr(array_files, "_MIN_CHUNK_BYTES", 1)
    step = pw.program(lambda w: jax.jit(lambda w: w + 1, in_shardings=HERE, out_shardings=HERE)(w), donate_argnums=(0,))
    w, path = step(LARGE), tmp_path / "state"
    saving = threading.Thread(target=pw.save, args=({"w": w}, path))
    saving.start()
    assert becomes(lambda: any((f / "a0" / "c").exists() for f in array_folders(path)))
    steps = 0
    while saving.is_alive():
        w = step(w)
        w.block_until_ready()
        steps += 1
    saving.join()
    print(f"\n{steps} steps meanwhile", end="")
    assert steps > 1 and np.array_equal(np.asarray(w), LARGE + 1 + steps)
    np.testing.assert_array_equal(pw.restore({"w": LARGE}, path)["w"], LARGE + 1)


def assert_unchanged_and_restorable(tree: Any, path: Path, before: dict[Path, bytes]) -> None:
    """Asserts that the snapshot's files are unchanged, and that the new host restores them."""
    assert {p: p.read_bytes() for p in path.parent.rglob("*") if p.is_file()} == before
    back = pw.restore(tree, path)
    assert this_cluster().hosts[tree["a"].handle.buffer.origin[1]].lost is None
    np.testing.assert_array_equal(np.asarray(back["a"]), LARGE)
    np.testing.assert_array_equal(np.asarray(back["b"]), LARGE + 1)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Any, Path, dict[Path, bytes]]:
    """Saves arrays of one island; returns the tree, the path and the contents of the files."""
    path = tmp_path / "state"
    tree = {"a": placed("float32", LARGE, HERE), "b": placed("float32", LARGE + 1, HERE)}
    pw.save(tree, path)
    return tree, path, {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}


def test_a_host_killed_while_writing_leaves_the_last_snapshot(saved: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, path, before = saved
    was, codes = array_folders(path), list[str]()
    pid = pid_of(tree["a"].handle.buffer.origin[1])
    monkeypatch.setattr(array_files, "MAX_CHUNK_BYTES", 256)
    monkeypatch.setattr(array_files, "_MIN_CHUNK_BYTES", 1)
    thread = threading.Thread(target=lambda: codes.append(code_of(pw.save, tree, path)))
    thread.start()
    assert becomes(lambda: any((f / "a0" / "c" / "0").exists() for f in array_folders(path) if f not in was))
    os.kill(pid, signal.SIGKILL)
    thread.join(60)
    assert codes == ["PWC0910"] and not is_alive(pid)
    assert_unchanged_and_restorable(tree, path, before)


@pytest.mark.parametrize(("use", "message"), [(pw.save, m.WriteArray), (pw.restore, m.ReadArray)])
def test_a_host_killed_at_a_save_or_restore_request_leaves_the_snapshot(
    use: Any, message: type, saved: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, path, before = saved
    pid = pid_of(tree["a"].handle.buffer.origin[1])
    post, unsent = RemoteHost.post, [message]  # a thread for each array sends one

    def post_and_kill(self: RemoteHost, sent: m.Message) -> None:
        last = False
        if isinstance(sent, message):
            with suppress(IndexError):
                last = unsent.pop() is message
        if last:
            os.kill(pid, signal.SIGSTOP)  # so that it cannot answer before it is killed
        post(self, sent)
        if last:
            os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(RemoteHost, "post", post_and_kill)
    assert code_of(use, tree, path) == "PWC0910"
    monkeypatch.undo()
    assert_unchanged_and_restorable(tree, path, before)


def test_a_full_disk_of_a_host_leaves_the_last_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "state"
    tree = {"a": placed("float32", LARGE, HERE)}
    pw.save(tree, path)
    before = sorted(tmp_path.rglob("*"))
    pid = pid_of(tree["a"].handle.buffer.origin[1])
    with full_disk(1 << 17, pid):
        assert code_of(pw.save, tree, path) == "PWC0606"
    assert sorted(tmp_path.rglob("*")) == before
    assert bits(pw.restore(tree, path)["a"]) == bits(tree["a"])


def test_restoring_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    tree = {"a": placed("float32", LARGE, HERE), "b": placed("float32", LARGE, THERE)}
    pw.save(tree, path)
    (folder,) = array_folders(path)
    chunk = folder / "a1" / "c" / "3" / "0"
    raw = chunk.read_bytes()
    for bad in (b"", raw[:-1], raw[:100] + b"x" + raw[101:]):
        chunk.write_bytes(bad)
        with pytest.raises(pw.PathwaysError, match="PWC0615") as caught:
            pw.restore(tree, path)
        assert "['b']" in str(caught.value) and "test_cluster_snapshots.py" in str(caught.value)
    chunk.write_bytes(raw)
    assert bits(pw.restore(tree, path)["b"]) == bits(tree["b"])


def test_saving_a_lost_array_raises_its_error_and_writes_nothing(tmp_path: Path) -> None:
    w = placed("float32", LARGE, HERE)
    w.block_until_ready()
    island = w.handle.buffer.origin[1]
    old = pid_of(island)
    send(island, signal.SIGKILL)
    assert becomes(lambda: is_replaced(island, old))
    assert code_of(pw.save, {"w": w}, tmp_path / "state") == "PWC0910" and not list(tmp_path.iterdir())


def test_restoring_beyond_the_memory_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    small = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("x"), P("x"))
    pw.save({"w": LARGE}, path)
    with pw.cluster("islands=1,devices=2,memory=700000"):
        wanted = {"w": like(LARGE, small)}
        first = pw.restore(wanted, path)
        assert code_of(pw.restore, wanted, path) == "PWC0507"
        first["w"].delete()
        assert bits(pw.restore(wanted, path)["w"])[2] == LARGE.tobytes()
        assert code_of(pw.restore, {"w": like(LARGE, NamedSharding(small.mesh, P()))}, path) == "PWC0506"


@pytest.mark.parametrize(
    "change",
    [
        {"folder": "/tmp"},
        {"folder": "{}/.."},
        {"folder": "{}/a0"},
        {"folder": "state.arrays-0123456789abcdef"},
        {"name": "../../a0"},
        {"name": "/tmp/a0"},
        {"dtype": "int32"},
        {"shape": [256, 1024]},
        {"file": "[]"},
        {"file": "{"},
        {"file": "[" * 100000},
    ],
)
def test_hosts_refuse_snapshot_requests_with_forged_paths_or_metadata(
    change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    w, path = placed("float32", LARGE, HERE), tmp_path / "state"
    pw.save({"w": w}, path)
    before = sorted(tmp_path.rglob("*"))
    encoded = encode

    def change_in(message: m.Message) -> Any:
        if isinstance(message, m.WriteArray | m.ReadArray):
            folder = change.get("folder", "{}").format(os.fsdecode(message.folder))
            fields: dict[str, Any] = structs.asdict(message) | {"folder": os.fsencode(folder)}
            said = json.loads(message.file) | {k: v for k, v in change.items() if k not in ("folder", "file")}
            fields["file"] = change.get("file") or json.dumps(said)
            message = type(message)(**fields)
        return encoded(message)

    monkeypatch.setattr("pathways.runtime.wire.peer.encode", change_in)
    assert code_of(pw.save, {"w": w}, path) == "PWC0911"
    assert code_of(pw.restore, {"w": w}, path) == "PWC0911"
    monkeypatch.undo()
    assert sorted(tmp_path.rglob("*")) == before and bits(pw.restore({"w": w}, path)["w"]) == bits(w)


def test_hosts_refuse_to_save_or_restore_arrays_that_they_do_not_have(tmp_path: Path) -> None:
    host = this_cluster().hosts["island0"]
    with pytest.raises(pw.PathwaysError, match="PWC0911"):
        host.ask(lambda request: m.WriteArray(request, 1 << 40, os.fsencode(tmp_path), "{}"))
    with pytest.raises(pw.PathwaysError, match="PWC0911"):
        host.ask(lambda request: m.ReadArray(request, 1 << 40, 1 << 40, 0, os.fsencode(tmp_path), "{}"))
    assert host.lost is None
