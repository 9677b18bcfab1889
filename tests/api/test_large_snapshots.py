"""Tests how snapshots store large arrays: beside the file, shard by shard, atomically, restorable on any devices."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.codes import code_of
from support.processes import ROOT
from support.saved_trees import DTYPES, MESHES, bits, host_values, like, placed, shape_of, sharding_of

import pathways as pw
from pathways.api import snapshots
from pathways.api.npz import INDEX
from pathways.dialect.array_files import ArrayFile
from pathways.dialect.files import whole_file

LARGE = np.arange(1 << 18, dtype=np.float32).reshape(512, 512)
SHARDING = NamedSharding(MESHES[0], P("x", "y"))


@pytest.fixture
def all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has snapshots treat arrays of every size as large."""
    monkeypatch.setattr(snapshots, "LARGE_SNAPSHOT_BYTES", 0)


def folders(path: Path) -> list[Path]:
    """Lists the array folders of a snapshot."""
    return sorted(path.parent.glob(f"{path.name}.arrays-*"))


def test_large_arrays_are_saved_beside_the_file_and_small_arrays_in_it(tmp_path: Path) -> None:
    path = tmp_path / "state"
    tree: dict[str, Any] = {
        "large": LARGE,
        "ours": placed("float32", LARGE, SHARDING),
        "jax": jax.numpy.asarray(LARGE),
        "small": LARGE[0],
    }
    size = pw.save(tree, path)
    (folder,) = folders(path)
    files = [path, *(p for p in folder.rglob("*") if p.is_file())]
    assert size == sum(p.stat().st_size for p in files) and path.stat().st_size < LARGE.nbytes
    with np.load(path) as file:
        assert set(file.files) == {"a3", INDEX}
    back = pw.restore(tree, path)
    assert isinstance(back["ours"], pw.Array) and back["ours"].sharding == tree["ours"].sharding
    for name in tree:
        assert bits(back[name]) == bits(tree[name])
    assert len([p for p in files if p.name != "zarr.json"]) == 1 + 1 + 4 + 1


def test_a_snapshot_of_small_arrays_is_one_file_of_version_1(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    pw.save({"a": LARGE[0], "b": 3}, path)
    assert os.listdir(tmp_path) == ["state.npz"]
    with np.load(path) as file:
        head = json.loads(bytes(file[INDEX]))
    assert head == {
        "version": 1,
        "arrays": [{"name": "['a']", "dtype": "float32"}, {"name": "['b']", "dtype": "int64"}],
    }


def test_a_large_array_in_a_version_1_file_is_restored(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    rows = [{"name": "['w']", "dtype": "float32"}, {"name": "['b']", "dtype": "bfloat16"}]
    head = np.frombuffer(json.dumps({"version": 1, "arrays": rows}).encode(), np.uint8)
    members: Any = {INDEX: head, "a0": LARGE, "a1": np.arange(4, dtype=np.uint16)}
    with whole_file(path) as file:
        np.savez(file, **members)
    tree = {"w": like(LARGE, SHARDING), "b": jax.ShapeDtypeStruct((4,), jax.numpy.bfloat16)}
    back = pw.restore(tree, path)
    np.testing.assert_array_equal(back["w"], LARGE)
    assert back["b"].tobytes() == members["a1"].tobytes()


def test_replacing_a_snapshot_removes_the_folder_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "state"
    pw.save({"w": LARGE}, path)
    (first,) = folders(path)
    pw.save({"w": LARGE + 1}, path)
    (second,) = folders(path)
    assert first != second and np.array_equal(pw.restore({"w": LARGE}, path)["w"], LARGE + 1)
    pw.save({"w": LARGE[0]}, path)
    assert not folders(path)


@pytest.mark.long(
    "more element types of the same kind", keep=("bool", "uint8", "bfloat16", "float8_e4m3fn", "complex64")
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_is_restored_to_the_requested_sharding(dtype: str, tmp_path: Path, all_large: None) -> None:
    """Saves an array of a program and a host array; restores onto the same devices, other devices and the host."""
    with jax.enable_x64(True):
        value = host_values(dtype, (4, 8), 1)
        try:
            ours = placed(dtype, value, SHARDING)
            ours.block_until_ready()
        except Exception as error:
            pytest.skip(f"jax of this version has no {dtype} on CPU: {str(error).splitlines()[0]}")
        path = tmp_path / "state"
        host = np.zeros((4, 8), jax.dtypes.float0) if dtype == "float0" else value
        pw.save({"ours": ours, "host": host}, path)
        for sharding in (None, SHARDING, NamedSharding(MESHES[2], P(None, "y")), NamedSharding(MESHES[1], P("y", "x"))):
            back = pw.restore({"ours": like(ours, sharding), "host": host}, path)
            assert bits(back["ours"]) == bits(ours) and bits(back["host"]) == bits(host)
            assert isinstance(back["ours"], pw.Array) == (sharding is not None)
        again = pw.restore({"ours": ours}, path)["ours"]
        assert isinstance(again, pw.Array) and bits(again) == bits(ours) and again.weak_type == ours.weak_type


@pytest.mark.long("more random examples of the same kind", keep=("3", "4"))
@pytest.mark.parametrize("seed", range(8))
def test_random_trees_are_restored_on_random_devices(seed: int, tmp_path: Path, all_large: None) -> None:
    rng = random.Random(seed)
    tree: dict[str, Any] = {}
    for number in range(5):
        dtype, shape = rng.choice(("float32", "bfloat16", "int8", "bool", "complex64", "uint16")), shape_of(rng)
        tree[str(number)] = placed(dtype, host_values(dtype, shape, number), sharding_of(rng, len(shape)))
    path = tmp_path / "state"
    pw.save(tree, path)
    wanted = {k: rng.choice((v, like(v), like(v, sharding_of(rng, v.ndim)))) for k, v in tree.items()}
    back = pw.restore(wanted, path)
    assert {k: bits(v) for k, v in back.items()} == {k: bits(v) for k, v in tree.items()}
    for name, leaf in wanted.items():
        assert isinstance(back[name], pw.Array) == (getattr(leaf, "sharding", None) is not None)


def test_programs_accept_and_donate_restored_arrays(tmp_path: Path) -> None:
    """Restores onto the devices of the saved array and donates the result."""
    path = tmp_path / "state"
    step = pw.program(
        lambda w: jax.jit(lambda w: w + 1, in_shardings=SHARDING, out_shardings=SHARDING)(w), donate_argnums=(0,)
    )
    w = step(LARGE)
    pw.save(w, path)
    kept = np.asarray(w)
    for _ in range(2):
        back = pw.restore(w, path)
        assert back.handle.buffer.devices == w.handle.buffer.devices
        w = step(back)
        assert back.is_deleted() and np.array_equal(np.asarray(w), kept + 1)


def test_a_save_is_unaffected_by_a_run_that_donates_the_array_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = pw.program(
        lambda w: jax.jit(lambda w: w + 1, in_shardings=SHARDING, out_shardings=SHARDING)(w), donate_argnums=(0,)
    )
    w, path, write = step(LARGE), tmp_path / "state", snapshots.write_array
    after: list[Any] = []

    def write_after_a_run(array: Any, **others: Any) -> None:
        after.append(step(w))
        after[0].block_until_ready()
        write(array, **others)

    monkeypatch.setattr(snapshots, "write_array", write_after_a_run)
    pw.save({"w": w}, path)
    assert np.array_equal(pw.restore({"w": LARGE}, path)["w"], LARGE + 1)
    assert np.array_equal(np.asarray(after[0]), LARGE + 2) and w.is_deleted()


def test_each_distinct_shard_is_written_once(tmp_path: Path, all_large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes: list[Any] = []
    write = ArrayFile.write

    def counted(self: ArrayFile, folder: Path, box: Any, values: Any) -> None:
        boxes.append(box)
        write(self, folder, box, values)

    monkeypatch.setattr(ArrayFile, "write", counted)
    x = np.ones((8, 8), np.float32)
    for spec, count in ((P(), 1), (P("x"), 2), (P(None, "y"), 2), (P("x", "y"), 4)):
        boxes.clear()
        pw.save(placed("float32", x, NamedSharding(MESHES[0], spec)), tmp_path / "state")
        assert len(boxes) == len(set(boxes)) == count


def test_an_array_above_the_fetch_limit_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    w = placed("float32", LARGE, SHARDING)
    monkeypatch.setattr(snapshots.process().controller, "fetch_limit", 1000)
    assert code_of(np.asarray, w) == "PWC0516"
    pw.save({"w": w}, tmp_path / "state")
    back = pw.restore({"w": w}, tmp_path / "state")["w"]
    monkeypatch.undo()
    np.testing.assert_array_equal(np.asarray(back), LARGE)


def test_a_restore_by_a_suspended_client_is_refused(tmp_path: Path) -> None:
    pw.save({"w": LARGE}, tmp_path / "state")
    wanted = {"w": like(LARGE, SHARDING)}
    with pw.Client("asleep") as client:
        client.suspend()
        assert code_of(pw.restore, wanted, tmp_path / "state") == "PWC0515"
        client.resume()
        w = pw.restore(wanted, tmp_path / "state")["w"]
        assert bits(w)[2] == LARGE.tobytes()
    assert code_of(np.asarray, w) == "PWC0509"


def test_a_failed_save_leaves_the_last_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "state"
    pw.save({"w": LARGE}, path)
    before = sorted(tmp_path.rglob("*"))
    gone = placed("float32", LARGE, SHARDING)
    gone.delete()
    for tree, code in (({"w": LARGE + 1, "text": "text"}, "PWC0514"), ({"v": LARGE, "w": gone}, "PWC0217")):
        assert code_of(pw.save, tree, path) == code
        assert sorted(tmp_path.rglob("*")) == before
    assert code_of(pw.save, {"w": LARGE}, tmp_path / "nowhere" / "state") == "PWC0606"
    np.testing.assert_array_equal(pw.restore({"w": LARGE}, path)["w"], LARGE)


def test_every_mismatch_is_reported_before_any_array_is_read(tmp_path: Path) -> None:
    path = tmp_path / "state"
    pw.save({"w": LARGE, "v": LARGE}, path)
    (folder,) = folders(path)
    for chunk in folder.rglob("c/**/*"):
        if chunk.is_file():
            chunk.unlink()
    wrong = {"w": like(LARGE[:4], SHARDING), "v": LARGE.astype(np.int32), "missing": LARGE}
    with pytest.raises(pw.PathwaysError, match="PWC0514") as caught:
        pw.restore(wrong, path)
    text = str(caught.value)
    assert all(f"['{n}']" in text for n in wrong) and "float32 [512, 512]" in text and "float32 [4, 512]" in text


def test_a_damaged_array_is_named_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "state"
    tree = {"a": placed("float32", LARGE, SHARDING), "b": LARGE}
    pw.save(tree, path)
    (folder,) = folders(path)
    for name, chunk in (("['a']", folder / "a0" / "c" / "1" / "0"), ("['b']", folder / "a1" / "c" / "0" / "0")):
        raw = bytearray(chunk.read_bytes())
        raw[len(raw) // 2] ^= 4
        chunk.write_bytes(raw)
        for wanted in (tree, {k: like(v) for k, v in tree.items()}):
            with pytest.raises(pw.PathwaysError, match="PWC0615") as caught:
                pw.restore(wanted, path)
            assert name in str(caught.value) and "test_large_snapshots.py" in str(caught.value)
        raw[len(raw) // 2] ^= 4
        chunk.write_bytes(raw)
    assert bits(pw.restore(tree, path)["a"]) == bits(tree["a"])


def test_a_snapshot_without_its_array_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    pw.save({"w": LARGE}, path)
    (folder,) = folders(path)
    moved = tmp_path / "moved"
    moved.mkdir()
    path.rename(moved / "other")
    with pytest.raises(pw.PathwaysError, match="PWC0514") as caught:
        pw.restore({"w": LARGE}, moved / "other")
    assert folder.name in str(caught.value)
    folder.rename(moved / folder.name)
    np.testing.assert_array_equal(pw.restore({"w": LARGE}, moved / "other")["w"], LARGE)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 3},
        {"folder": "../state.arrays-0123456789abcdef"},
        {"folder": 3},
        {"folder": None},
        {"file": None},
        {"file": {}},
        {"file": {"name": "../a0"}},
        {"file": {"dtype": "int8"}},
        {"file": {"shape": [1 << 60, 512]}},
        {"file": {"chunk": [0, 512]}},
        {"dtype": "key<fry>"},
        {"dtype": "float0"},
        {"dtype": None},
    ],
)
def test_an_invalid_index_is_refused(change: Any, tmp_path: Path) -> None:
    path = tmp_path / "state"
    pw.save({"w": LARGE}, path)
    with np.load(path) as file:
        head = json.loads(bytes(file[INDEX]))
    row = head["arrays"][0]
    if isinstance(change.get("file"), dict):
        change = {"file": row["file"] | change["file"]} if change["file"] else change
    for key, value in change.items():
        (head if key in head else row)[key] = value
    with whole_file(path) as file:
        np.savez(file, **{INDEX: np.frombuffer(json.dumps(head).encode(), np.uint8)})  # pyright: ignore
    assert code_of(pw.restore, {"w": LARGE}, path) == "PWC0514"


def test_a_snapshot_saved_to_a_pipe_is_complete(tmp_path: Path) -> None:
    read, write = os.pipe()
    with open(read, "rb") as source, open(write, "wb", 0), (tmp_path / "out").open("wb") as out:
        done = subprocess.Popen(["cat"], stdin=source, stdout=out)
        pw.save({"w": LARGE}, f"/dev/fd/{write}")
    assert done.wait(60) == 0
    np.testing.assert_array_equal(pw.restore({"w": LARGE}, tmp_path / "out")["w"], LARGE)
    assert os.listdir(tmp_path) == ["out"]


def test_concurrent_saves_leave_a_whole_snapshot(tmp_path: Path) -> None:
    """Restores meanwhile, too: each restore reads one complete snapshot."""
    path, codes, done = tmp_path / "state", list[str](), threading.Event()
    pw.save({"w": LARGE}, path)

    def save_repeatedly(number: int) -> None:
        codes.extend(code_of(pw.save, {"w": np.full_like(LARGE, number)}, path) for _ in range(20))

    def restore_repeatedly() -> None:
        while not done.is_set():
            w = pw.restore({"w": LARGE}, path)["w"]
            assert np.array_equal(w, LARGE) or (w == w[0, 0]).all()
        codes.append("looked")

    threads = [threading.Thread(target=save_repeatedly, args=(n,)) for n in range(3)]
    reader = threading.Thread(target=restore_repeatedly)
    for thread in (reader, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    reader.join()
    assert codes == [""] * 60 + ["looked"]
    assert (pw.restore({"w": LARGE}, path)["w"][0] < 3).all()
    pw.save({"w": LARGE}, path)
    assert len(folders(path)) == 1


SAVES_TWICE = """
import sys, numpy as np, pathways as pw
from pathways.dialect import array_files
array_files.MAX_CHUNK_BYTES, array_files._MIN_CHUNK_BYTES = 1024, 1
x = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)
pw.save({"w": x}, sys.argv[1])
print("saved", flush=True)
pw.save({"w": x + 1}, sys.argv[1])
"""


@pytest.fixture
def half_written(tmp_path: Path) -> Iterator[Path]:
    """A snapshot, and the partial array folder of a second save whose process was killed."""
    path = tmp_path / "state"
    process: Any = subprocess.Popen(
        [sys.executable, "-c", SAVES_TWICE, str(path)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    with process:
        assert process.stdout.readline() == b"saved\n"
        while len(folders(path)) < 2 or not any((f / "a0" / "c" / "0").exists() for f in folders(path)[:2]):
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    yield path


@pytest.mark.long("a process is killed while it writes a snapshot")
def test_a_save_that_is_killed_leaves_the_last_snapshot(half_written: Path) -> None:
    want = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)
    np.testing.assert_array_equal(pw.restore({"w": want}, half_written)["w"], want)
    assert len(folders(half_written)) == 2
    pw.save({"w": want + 2}, half_written)
    assert len(folders(half_written)) == 1
    np.testing.assert_array_equal(pw.restore({"w": want}, half_written)["w"], want + 2)
