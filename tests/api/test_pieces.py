"""Tests stacks of layers split into pieces on the slices of their stages: users see one array, slices only theirs."""

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.processes import pwc_here
from support.stacked import Stacks, layers, stacks, tree
from support.training import training_step

import pathways as pw
from pathways.api import snapshots
from pathways.api.array_in_pieces import ArrayInPieces
from pathways.api.process import process
from pathways.api.stages import Compiled
from pathways.cli.inspect import channels
from pathways.dialect.pieces import read_piece
from pathways.dialect.plan.check import validate
from pathways.dialect.plan.memory import peak

ADAMW = optax.chain(optax.clip_by_global_norm(0.05), optax.adamw(1e-2, eps=1e-3))
OPTIMIZERS = {
    "sgd": optax.sgd(0.1),
    "momentum": optax.sgd(0.1, momentum=0.9, nesterov=True),
    "adamw": optax.adamw(1e-2, eps=1e-3),
    "clip, adamw": ADAMW,
    "clip, momentum": optax.chain(optax.clip_by_global_norm(0.05), optax.sgd(0.1, momentum=0.9)),
    "lamb": optax.lamb(1e-2, eps=1e-3),
    "clip by value, rmsprop": optax.chain(optax.clip(0.01), optax.rmsprop(1e-3, eps=1e-3)),
}


def assert_equal(ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    found, wanted = tree.leaves(ours), tree.leaves(theirs)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert getattr(a, "weak_type", b.weak_type) == b.weak_type
        np.testing.assert_allclose(
            np.asarray(a, np.float32), np.asarray(b, np.float32), rtol=tolerance, atol=tolerance, err_msg=str(a.shape)
        )


def steps(made: Stacks, count: int = 3, **options: Any) -> tuple[Any, Any]:
    """Returns parameters, state and loss after `count` steps: those of the program, and those of plain JAX."""
    program, plain = made.program(**options), jax.jit(made.plain)
    params, state, batch = made.arguments
    ours, theirs = (params, state), (params, state)
    for _ in range(count - 1):
        ours, theirs = program(*ours, batch)[:2], plain(*theirs, batch)[:2]
    return program(*ours, batch), plain(*theirs, batch)


@pytest.mark.long("more random examples of the same kind")
@settings(max_examples=8, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    chain=st.sampled_from(sorted(OPTIMIZERS)),
    dtype=st.sampled_from([jnp.float32, jnp.bfloat16]),
    how=st.sampled_from([(0, False), (0, True), (2, False), (2, True)]),
    axis=st.sampled_from([0, 1]),
    seed=st.integers(0, 1 << 16),
)
def test_steps_over_a_random_stack_equal_plain_jax(
    sizes: list[int], chain: str, dtype: Any, how: tuple[int, bool], axis: int, seed: int
) -> None:
    made = stacks(sizes, OPTIMIZERS[chain], dtype=dtype, microbatches=how[0], moved=how[1], axis=axis, seed=seed)
    ours, theirs = steps(made, donate_argnums=(0, 1))
    assert_equal(ours, theirs, 1e-5 if dtype == jnp.float32 else 5e-2)
    params, state, _ = ours
    assert params["mix"].axis == axis and params["mix"].sizes == tuple(sizes)
    for leaf in tree.leaves((params, state)):
        assert isinstance(leaf, ArrayInPieces) == (leaf.ndim > 0)


@pytest.mark.long("training is compared with plain JAX: 5 to 40 s each", keep=("False-1f1b",))
@pytest.mark.parametrize("schedule", ["program", "1f1b"])
@pytest.mark.parametrize("moved", [False, True])
def test_no_parameter_leaves_its_slice(schedule: str, moved: bool) -> None:
    width, microbatches, stages = 32, 4, 4
    made = stacks((2,) * stages, ADAMW, width=width, batch=8, microbatches=microbatches, moved=moved)
    plan = made.program(donate_argnums=(0, 1)).lower(*made.arguments).compile(schedule=schedule).plan
    sent = [stream.kind_of[slot].type for (stream, slot), _ in channels(plan)]
    activations = [t for t in sent if t.shape == (8 // microbatches, width)]
    assert len(activations) == 2 * microbatches * (stages - 1), "there and back"
    assert all(t.shape == () for t in sent if t not in activations), "a norm, a step count"
    peaks = [peak(plan, s.island).bytes for s in plan.streams]
    assert max(peaks) <= 1.15 * min(peaks)
    for stream in plan.streams:
        held = sum(b.bytes for b in stream.buffers if b.role == "input" and len(b.type.shape) > 1)
        mine = 3 * 4 * 2 * width * (width + 1)  # of two layers: parameters and two moments
        assert mine <= held <= mine + 4 * 8 * width, "and the batch, on the first"


STACKS = stacks((2, 1, 3), ADAMW)


def trained() -> Any:
    """Returns the parameters after one step."""
    return STACKS.program()(*STACKS.arguments)[0]


def test_an_array_in_pieces_acts_as_one_array() -> None:
    w: Any = trained()["mix"]
    plain: Any = jax.jit(STACKS.plain)(*STACKS.arguments)[0]["mix"]
    assert (
        type(w) is ArrayInPieces
        and issubclass(ArrayInPieces, pw.Array)
        and w.shape == plain.shape
        and w.dtype == plain.dtype
        and len(w) == 6
    )
    assert w.ndim == 3 and w.size == plain.size and w.nbytes == plain.nbytes and w.itemsize == 4
    assert w.block_until_ready() is w and w.is_ready() and w.block_until_ready(timeout=9.0) is w
    host = np.asarray(w)
    np.testing.assert_allclose(host, plain, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(w.to_jax(), host)
    np.testing.assert_array_equal(w + 1, host + 1)
    summed: Any = jnp.sum
    np.testing.assert_array_equal(summed(w, 0), summed(host, 0))
    np.testing.assert_array_equal(w[3], host[3])
    np.testing.assert_array_equal(jax.device_get(w), host)
    np.testing.assert_array_equal(jax.jit(lambda x: 2 * x)(w), 2 * host)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(w)), host)
    assert repr(w) == repr(jnp.asarray(host)) and str(w) == str(host)
    assert w.on_device_size_in_bytes() == w.nbytes and not w.is_fully_replicated
    other = copy.deepcopy(w)
    w.delete()
    assert w.is_deleted() and not other.is_deleted() and "deleted" in repr(w)
    np.testing.assert_array_equal(other, host)
    with pytest.raises(pw.PathwaysError, match="PWC0217"):
        np.asarray(w)


def test_the_sharding_of_pieces_names_the_slice_of_each_piece() -> None:
    w = trained()["mix"]
    sharding = w.sharding
    assert sharding.sizes == (2, 1, 3) and sharding.axis == 0 and len(sharding.pieces) == 3
    assert w.devices() == sharding.device_set and len(w.devices()) == 3
    assert [s.index[0] for s in w.addressable_shards] == [slice(0, 2), slice(2, 3), slice(3, 6)]
    host = np.asarray(w)
    for shard in w.addressable_shards:
        np.testing.assert_array_equal(shard.data, host[shard.index])
        assert sharding.devices_indices_map(w.shape)[shard.device] == shard.index
    asked = jax.ShapeDtypeStruct(w.shape, w.dtype, sharding=sharding)
    assert asked.sharding == trained()["mix"].sharding and hash(sharding) == hash(asked.sharding)
    assert "2 on slice" in repr(sharding)


def test_an_array_in_pieces_is_donated_to_the_next_step() -> None:
    """Donates an array in pieces: it and each of its pieces become unusable, a copy of it stays usable."""
    program = STACKS.program(donate_argnums=(0, 1))
    params, state, _ = program(*STACKS.arguments)
    kept = params["mix"].copy()
    again, *_ = program(params, state, STACKS.arguments[2])
    assert params["mix"].is_deleted() and not kept.is_deleted()
    assert all(p.is_deleted() for p in params["mix"].pieces) and "donated to step" in repr(params["mix"])
    assert not again["mix"].is_deleted()
    with pytest.raises(pw.PathwaysError, match="PWC0207"):
        program(params, state, STACKS.arguments[2])


@pytest.mark.long("training is compared with plain JAX: 5 to 40 s each")
def test_a_program_accepts_arrays_in_other_pieces_and_whole_arrays() -> None:
    params, state, _ = STACKS.program()(*STACKS.arguments)
    host = tree.map(np.asarray, (params, state))
    other = stacks((3, 3), ADAMW)
    ours = other.program(donate_argnums=0)(params, state, STACKS.arguments[2])
    assert_equal(ours, jax.jit(other.plain)(*tree.map(jnp.asarray, host), STACKS.arguments[2]))
    assert ours[0]["mix"].sizes == (3, 3)
    assert params["mix"].is_deleted() and not tree.leaves(state)[1].is_deleted(), "donated, though it was copied"
    whole = pw.program(lambda w: w.sum(0))(ours[0]["mix"])
    np.testing.assert_allclose(whole, np.asarray(ours[0]["mix"]).sum(0), rtol=1e-5)
    back = other.program()(tree.map(lambda w: pw.program(lambda x: x * 1)(w), ours[0]), ours[1], STACKS.arguments[2])
    assert back[0]["mix"].sizes == (3, 3)


def test_an_argument_of_another_shape_is_refused_by_name() -> None:
    program = STACKS.program()
    compiled = program.lower(*STACKS.arguments).compile()
    params, state, batch = STACKS.arguments
    with pytest.raises(pw.PathwaysError, match=r"PWC0501.*params\['mix'\] of step") as caught:
        compiled({**params, "mix": params["mix"][:5]}, state, batch)
    assert "float32 [5, 8, 8]" in str(caught.value) and "float32 [6, 8, 8]" in str(caught.value)


def test_a_plan_loaded_from_a_file_keeps_its_pieces(tmp_path: Path) -> None:
    compiled = STACKS.program().lower(*STACKS.arguments).compile()
    compiled.save(tmp_path / "plan.bin")
    loaded: Compiled = pw.load(tmp_path / "plan.bin")
    assert loaded.plan.inputs == compiled.plan.inputs and loaded.plan.results == compiled.plan.results
    ours: Any = loaded(*STACKS.arguments)
    assert_equal(list(tree.leaves(ours)), tree.leaves(jax.jit(STACKS.plain)(*STACKS.arguments)))
    assert [type(x) for x in tree.leaves(loaded(*ours[:2], STACKS.arguments[2]))].count(ArrayInPieces) == 6


def test_a_snapshot_of_pieces_is_restored_in_any_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = STACKS.program()
    ours: Any = program(*STACKS.arguments)[:2]
    host = tree.map(np.asarray, ours)
    pw.save(ours, tmp_path / "small")
    monkeypatch.setattr(snapshots, "LARGE_SNAPSHOT_BYTES", 0)
    pw.save(ours, tmp_path / "large")
    other = stacks((3, 3), ADAMW).program()
    cut = other(*STACKS.arguments)[:2]
    asked = tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), cut)
    plain = tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), cut)
    for path in (tmp_path / "small", tmp_path / "large"):
        for wanted, sizes in ((ours, (2, 1, 3)), (cut, (3, 3)), (asked, (3, 3)), (plain, None)):
            back = pw.restore(wanted, path)
            tree.map(np.testing.assert_array_equal, tree.map(np.asarray, back), host)
            is_cut = path.name == "large" and sizes is not None
            for leaf in tree.leaves(back):
                assert isinstance(leaf, ArrayInPieces) == (is_cut and leaf.ndim > 0)
                assert not isinstance(leaf, ArrayInPieces) or leaf.sizes == sizes
            again = (program if sizes == (2, 1, 3) else other)(*back, STACKS.arguments[2])
            assert_equal(again, jax.jit(STACKS.plain)(*host, STACKS.arguments[2]))


def test_pieces_above_the_fetch_limit_are_saved_and_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the fetch limit does not apply to arrays that are saved beside the snapshot file."""
    monkeypatch.setattr(snapshots, "LARGE_SNAPSHOT_BYTES", 0)
    params = trained()
    monkeypatch.setattr(process().controller, "fetch_limit", 8)
    with pytest.raises(pw.PathwaysError, match="PWC0516"):
        np.asarray(params["mix"])
    pw.save(params, tmp_path / "state")
    back = pw.restore(params, tmp_path / "state")
    monkeypatch.undo()
    np.testing.assert_array_equal(back["mix"], params["mix"])


SOURCE = """
import optax, pathways as pw
from support.stacked import stacks

made = stacks((2, 1, 3), optax.chain(optax.clip_by_global_norm(0.05), optax.adamw(1e-2, eps=1e-3)))
step = pw.program(made.step, example_args=made.arguments)
"""


def test_command_line_files_hold_whole_arrays(tmp_path: Path) -> None:
    source, plan, out = tmp_path / "model.py", tmp_path / "plan.bin", tmp_path / "out.npz"
    source.write_text(SOURCE)
    assert pwc_here("compile", f"{source}:step", "-o", str(plan))[0] == 0
    params, state, batch = STACKS.arguments
    names = {**{f"params['{k}']": v for k, v in params.items()}, "batch": batch, "state[1][0].count": state[1][0].count}
    moments = {"mu": state[1][0].mu, "nu": state[1][0].nu}
    names |= {f"state[1][0].{m}['{k}']": v for m, of in moments.items() for k, v in of.items()}
    values: Any = {k: np.asarray(v) for k, v in names.items()}
    np.savez(tmp_path / "in.npz", **values)
    code, shown, said = pwc_here(
        "run", str(plan), "--inputs", str(tmp_path / "in.npz"), "--outputs", str(out), "--reference"
    )
    assert code == 0 and "reference: equal" in shown + said and "out[0]['mix']: float32[6, 8, 8]" in shown
    wanted: Any = jax.jit(STACKS.plain)(*STACKS.arguments)
    assert_equal(pw.restore(wanted, out), wanted)
    shown = " ".join(pwc_here("inspect", str(plan))[1].split())
    assert "inputs 8 arrays" in shown
    assert "params['mix'] float32[6, 8, 8] in 3 pieces island0, island1, island2" in shown
    assert "params['mix'][3:6]" in pwc_here("inspect", str(plan), "--all")[1]
    refused = pwc_here("run", str(plan), "--input", "params['mix'][0:2]=1")
    assert refused[0] and "PWC0803" in refused[2]


def test_plans_whose_pieces_form_no_whole_array_are_refused() -> None:
    plan = STACKS.program().lower(*STACKS.arguments).compile().plan
    first, second, *rest = plan.inputs
    assert first.piece is not None and second.piece is not None
    bad = [
        replace(second, piece=replace(second.piece, start=3)),
        replace(second, piece=replace(second.piece, leaf="other")),
        replace(second, piece=replace(second.piece, whole=7)),
        replace(second, piece=replace(second.piece, axis=1)),
        replace(second, piece=replace(second.piece, axis=-1)),
        replace(second, piece=None),
        replace(second, donated=True),
        replace(second, dtype="key<fry>"),
    ]
    validate(plan)
    for port in bad:
        with pytest.raises(pw.PathwaysError, match="PWC060"):
            validate(replace(plan, inputs=(first, port, *rest)))
    for inputs in ((first, *rest), (second, first, *rest), (*rest[:-1], first)):
        with pytest.raises(pw.PathwaysError, match="PWC060"):
            validate(replace(plan, inputs=inputs))
    with pytest.raises(ValueError, match="for a piece"):
        read_piece('["w", 0, 1]')


@pytest.mark.long("a cluster runs what one process ran above: 6 s")
def test_training_in_pieces_on_a_cluster_equals_plain_jax() -> None:
    """Keeps pieces on three islands in separate processes from one step to the next."""
    outer = process()
    made = stacks((2, 1, 3), ADAMW, microbatches=2, moved=True)
    with pw.cluster("islands=3,devices=1"):
        program = made.program(donate_argnums=(0, 1))
        batch = made.arguments[2]
        params, state, value = program(*made.arguments)
        params, state, value = program(params, state, batch)
        ours = tree.map(np.asarray, (params, state, value))
        assert len({p.handle.buffer.origin[1] for p in params["mix"].pieces}) == 3
    assert process() is outer
    plain = jax.jit(made.plain)
    theirs = plain(*plain(*made.arguments)[:2], made.arguments[2])
    tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), ours, tree.map(np.asarray, theirs))


def test_pipelining_a_loss_over_a_stack_splits_it_into_pieces() -> None:
    """Has `pw.pipeline` cut the loop over layers and give each stage only the layers that it needs."""
    made = pw.make_virtual_device_set()
    meshes = [made.add_slice(devices=1).mesh("x") for _ in range(3)]
    params, state, batch = stacks((2, 2, 2), ADAMW, batch=8).arguments

    def loss(params: Any, batch: Any) -> Any:
        return layers(params, batch).mean()

    program = pw.program(training_step(pw.pipeline(loss, meshes, microbatches=4), ADAMW))
    plan = program.lower(params, state, batch).compile(schedule="1f1b").plan
    assert {stream.kind_of[slot].type.shape for (stream, slot), _ in channels(plan)} == {(), (2, 8)}, (
        "activations of a microbatch, and scalars"
    )
    ours = program(params, state, batch)
    assert_equal(ours, jax.jit(training_step(loss, ADAMW))(params, state, batch))
    assert ours[0]["mix"].sizes == (2, 2, 2)
