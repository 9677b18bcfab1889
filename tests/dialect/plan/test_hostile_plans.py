"""Plans with an invalid structure are refused with an error code before any other code uses them."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from support.fuzz_modules import custom
from support.plan_edits import body_of, changed, code_of, computed, every, island, kinded, meshed, on, ported, sliced
from support.processes import pwc_here

import pathways as pw
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.mlir import bytecode, from_portable, make_context, parse, portable, pretty
from pathways.dialect.plan.check import validate
from pathways.dialect.plan.instructions import Branch, Copy, Free, Recv, Run, Send
from pathways.dialect.plan.nouns import Plan, Stream
from pathways.dialect.plan.open_plan import open_plan
from pathways.dialect.plan.order import Joined, linearize
from pathways.dialect.plan.plan_file import read_plan, write_plan
from pathways.dialect.trees import LEAF, Tree


def two_slices_on_one_device(plan: Plan) -> Plan:
    """Moves the second slice of a one-island plan, and its mesh, onto the devices of the first slice."""
    first, second = plan.slices[:2]
    count = len(second.devices)
    meshes = tuple(replace(m, devices=first.devices[:count]) if m.slice == second.name else m for m in plan.meshes)
    slices = (first, replace(second, devices=first.devices[:count]), *plan.slices[2:])
    return replace(plan, slices=slices, meshes=meshes)


STRUCTURES: dict[str, Callable[[Plan], Plan]] = {
    "a mesh of no slice": lambda p: meshed(p, slice="nowhere"),
    "no slices": lambda p: replace(p, slices=()),
    "a mesh beside its slice": lambda p: sliced(p, devices=tuple(d + 100 for d in p.slices[0].devices)),
    "a slice on another island": lambda p: sliced(p, island=p.slices[-1].island),
    "a slice twice": lambda p: replace(p, slices=(*p.slices, p.slices[0])),
    "a slice with a device twice": lambda p: sliced(p, devices=(*p.slices[0].devices, p.slices[0].devices[0])),
    "axes of negative sizes": lambda p: meshed(p, axes=(("a", -2), ("b", -len(p.meshes[0].devices) // 2))),
    "an axis twice": lambda p: meshed(p, axes=(*p.meshes[0].axes, (p.meshes[0].axes[0][0], 1))),
    "a hundred axes": lambda p: meshed(p, axes=(*p.meshes[0].axes, *((f"a{i}", 1) for i in range(100)))),
    "no hosts": lambda p: island(p, hosts=0),
    "memory below zero": lambda p: island(p, memory=-1),
    "a rate that is no number": lambda p: island(p, flops=float("nan")),
    "an island twice": lambda p: replace(
        p, topology=replace(p.topology, islands=(*p.topology.islands, p.topology.islands[0]))
    ),
    "a peak below zero": lambda p: on(p, 0, peak_bytes=-(10**15)),
    "a bubble that is no number": lambda p: replace(p, schedule=replace(p.schedule, bubble=float("inf"))),
    "an argument in slot -5": lambda p: ported(p, "inputs", slot=-5),
    "an argument of another type": lambda p: ported(p, "inputs", dtype="int32"),
    "an argument of no type": lambda p: ported(p, "inputs", dtype="zzz"),
    "a key that is none": lambda p: ported(p, "inputs", dtype="key<fry>"),
    "an argument that is too large": lambda p: replace(
        p,
        in_tree=Tree("tuple", (*p.in_tree.children, LEAF)),
        inputs=(*p.inputs, replace(p.inputs[0], slot=-1, type=ArrayType((1 << 40, 0, 1 << 40), "int8"), dtype="int8")),
    ),
    "a result without a slot": lambda p: ported(p, "results", slot=-1),
    "a computation twice": lambda p: replace(p, computations=(*p.computations, p.computations[0])),
    "a computation without layouts": lambda p: computed(p, in_layouts=()),
    "a computation split over no axis": lambda p: computed(
        p, in_layouts=((("nowhere",),), *p.computations[0].in_layouts[1:])
    ),
    "a computation that gives what it has not": lambda p: computed(p, donated=(99,)),
    "a run that donates otherwise": lambda p: changed(
        p, (at := every(p, Run)[0]), donated=other_donation(at.instruction)
    ),
    "temporaries below zero": lambda p: changed(p, every(p, Run)[0], temporaries=-1),
    "parts that are none": lambda p: changed(p, every(p, Run)[0], parts=("what",)),
    "a slot freed twice": lambda p: changed(p, (at := every(p, Free)[0]), slots=at.instruction.slots * 2),
    "a slot that another value had": lambda p: slot_again(p),
    "a buffer of a hundred dimensions": lambda p: kinded(p, type=ArrayType((1,) * 100, "float32")),
    "a buffer of 2**80 bytes": lambda p: kinded(p, type=ArrayType((1 << 40, 1 << 40), "int8")),
    "a buffer of no mesh": lambda p: kinded(p, layout=replace(p.streams[0].kinds[0].layout, mesh=-1)),
    "a birth before all": lambda p: on(p, 0, groups=tuple(replace(g, birth=-7) for g in p.streams[0].groups)),
    "a body elsewhere": lambda p: replace(
        p, bodies=(*p.bodies, replace(body_of(p), streams=(Stream("nowhere", 0, (), (), ()),)))
    ),
}


def other_donation(run: Run) -> tuple[int, ...]:
    return () if run.donated else (0,)


def slot_again(plan: Plan) -> Plan:
    """Adds a copy that writes a slot again right after it is freed."""
    at = every(plan, Free)[0]
    slot = at.instruction.slots[0]
    before = plan.streams[at.stream].instructions
    same = next(
        i for i, b in enumerate(plan.streams[at.stream].buffers) if b.type == plan.streams[at.stream].buffers[slot].type
    )
    where = next((s for s in range(len(plan.streams[at.stream].buffers)) if s not in at.instruction.slots), same)
    copy = Copy(at.instruction.step, where, slot, None)
    return on(plan, at.stream, instructions=(*before[: at.position + 1], copy, *before[at.position + 1 :]))


@pytest.mark.parametrize("case", list(STRUCTURES))
def test_a_plan_with_an_invalid_structure_is_refused(pipe: Plan, case: str) -> None:
    assert code_of(STRUCTURES[case](pipe)) == "PWC0604"


def test_unchanged_plans_are_accepted(plans: list[Plan]) -> None:
    for plan in plans:
        validate(read_plan(write_plan(plan)))


def test_donation_that_the_module_does_not_state_is_refused(pipe: Plan, tmp_path: Path) -> None:
    """Runs and computation agree, but the module was compiled to donate other arguments."""
    number, computation = next((n, c) for n, c in enumerate(pipe.computations) if c.inputs)
    others = tuple(i for i in range(len(computation.inputs)) if i not in computation.donated)
    for donated in {(), others, (0,)} - {computation.donated}:
        computations = tuple(replace(c, donated=donated) if i == number else c for i, c in enumerate(pipe.computations))
        bad = replace(pipe, computations=computations)
        for at in every(bad, Run):
            bad = changed(bad, at, donated=donated) if at.instruction.computation == number else bad
        path = tmp_path / "plan.bin"
        path.write_bytes(write_plan(bad))
        with pytest.raises(PathwaysError, match="PWC0604"):
            open_plan(path)


def test_two_slices_on_one_device_are_refused(plans: list[Plan]) -> None:
    assert code_of(two_slices_on_one_device(plans[1])) == "PWC0604"


def test_a_channel_has_one_sender_and_one_receiver(plans: list[Plan]) -> None:
    """If two transfers shared a channel number, one receiver would get the value of the other transfer."""
    for plan in plans[:1] + plans[2:4]:
        first, *others = sorted({s.instruction.channel for s in every(plan, Send)})
        for second in others:
            ends = [at for kind in (Send, Recv) for at in every(plan, kind) if at.instruction.channel == second]
            merged = plan
            for at in ends:
                merged = changed(merged, at, channel=first)
            assert code_of(merged) == "PWC0604"


def test_both_ends_of_a_channel_must_name_each_other(pipe: Plan) -> None:
    send, recv = every(pipe, Send)[0], every(pipe, Recv)[0]
    here = pipe.streams[send.stream].island
    assert code_of(changed(pipe, send, to=here)) == "PWC0604"
    assert code_of(changed(pipe, recv, source=pipe.streams[recv.stream].island)) == "PWC0604"
    assert code_of(changed(pipe, recv, channel=-7)) == "PWC0604"


def _instruction_count(plan: Plan) -> int:
    return sum(len(i.parts) if isinstance(i, Joined) else 1 for _, i in linearize(plan))


def test_linearize_includes_every_instruction(plans: list[Plan]) -> None:
    """An instruction that `linearize` omits would never run."""
    for plan in plans:
        for function in (plan, *(plan.of_body(n) for n in range(len(plan.bodies)))):
            assert _instruction_count(function) == sum(len(s.instructions) for s in function.streams)


def test_instructions_without_dependencies_are_ordered_by_step(pipe: Plan) -> None:
    free = tuple(Free(step, (0,)) for step in range(12))
    shares = [free[0:12:2], free[1:12:2]]
    for order in ((0, 1), (1, 0)):
        streams = tuple(replace(s, instructions=shares[n]) for s, n in zip(pipe.streams, order, strict=False))
        steps = [i.step for _, i in linearize(replace(pipe, streams=streams)) if isinstance(i, Free)]
        assert steps == list(range(12))


def test_linearize_refuses_shared_channels_and_repeated_branches(plans: list[Plan]) -> None:
    """Two islands receive from one channel, and a stream contains one branch twice."""
    plan = plans[0]
    waiting = tuple(replace(s, instructions=(Recv(0, 5, 0, "there", None),)) for s in plan.streams[:2])
    sending = replace(plan.streams[0], island="there", instructions=(Send(0, 5, 0, "here", None),))
    for streams in ((*waiting, sending), (sending, *waiting), waiting):
        with pytest.raises(PathwaysError, match="PWC0604"):
            linearize(replace(plan, streams=streams))
    looped = plans[4]
    at = every(looped, Branch)[0]
    before = looped.streams[at.stream].instructions
    with pytest.raises(PathwaysError, match="PWC0604"):
        linearize(on(looped, at.stream, instructions=(*before, at.instruction)))


def test_a_boolean_constant_with_other_bytes_is_refused(plans: list[Plan]) -> None:
    program = pw.program(lambda x: x & np.array([True, False, True]))
    plan = program.lower(np.ones(3, bool)).compile().plan
    (held,) = plan.constant_buffers
    assert code_of(replace(plan, constants={held.member: b"\0\1\2"})) == "PWC0604"


def test_constants_and_results_may_not_be_freed_or_donated() -> None:
    """The next run reads constants again, and the caller reads results after the run."""
    held = np.arange(512, dtype=np.float32)
    plan = pw.program(lambda x: (x * 2 + held, x - 1)).lower(np.ones(512, np.float32)).compile().plan
    (constant,) = plan.constant_buffers
    run = every(plan, Run)[-1]
    before = plan.streams[0].instructions
    for slot in (constant.slot, *(p.slot for p in plan.results)):
        dropped = on(
            plan,
            0,
            instructions=(
                *before,
                Free(
                    run.instruction.step + 1,
                    (slot,),
                ),
            ),
        )
        with pytest.raises(PathwaysError, match="constants and results that are kept"):
            validate(dropped)
    at = next(a for a in every(plan, Run) if constant.slot in a.instruction.inputs)
    donated = (at.instruction.inputs.index(constant.slot),)
    number = at.instruction.computation
    given = (replace(c, donated=donated) if i == number else c for i, c in enumerate(plan.computations))
    with pytest.raises(PathwaysError, match="constants and results that are kept"):
        validate(changed(replace(plan, computations=tuple(given)), at, donated=donated))


@pytest.mark.long("another kind of invalid plan: 2 s", keep=("PWC0604",))
@pytest.mark.parametrize("code", ["PWC0604", "PWC0611"])
def test_every_command_refuses_an_invalid_plan(code: str, pipe: Plan, tmp_path: Path) -> None:
    """run, inspect, diff, why and check open plans through one function, so all of them refuse this plan."""
    path, good = tmp_path / "bad.bin", tmp_path / "good.bin"
    path.write_bytes(write_plan(meshed(pipe, slice="nowhere") if code == "PWC0604" else custom("TopK")))
    good.write_bytes(write_plan(pipe))
    for command in (("run",), ("inspect",), ("why",), ("check",), ("check", "--topology", "islands=9,devices=9")):
        exit_code, _, err = pwc_here(command[0], str(path), *command[1:])
        assert exit_code == 3 and code in err, command
    assert code in pwc_here("diff", str(good), str(path))[2]
    for opened in (open_plan, pw.load):
        with pytest.raises(PathwaysError, match=code):
            opened(path)


def test_a_refusal_by_xla_names_the_computation(tmp_path: Path) -> None:
    """The module satisfies all rules of its dialects, but XLA does not accept it."""
    plan = pw.program(jax.jit(lambda x: x * 2)).lower(np.ones((4, 4), np.float32)).compile().plan
    text = pretty(from_portable(plan.computations[0].module))
    call = "stablehlo.custom_call @no_such_target(%arg0) : (tensor<4x4xf32>) -> tensor<4x4xf32>"
    argument = re.search(r"@main\((%\w+):", text)
    assert argument is not None
    body = re.sub(r"stablehlo\.multiply .*", call.replace("%arg0", argument[1]), text)
    assert body != text
    module = portable(bytecode(parse(body, make_context()).operation))
    path = tmp_path / "plan.bin"
    path.write_bytes(write_plan(computed(plan, module=module, local=b"")))
    code, _, err = pwc_here("run", str(path))
    assert code == 3 and "Traceback" not in err and next(plan.runs()).name in err
