"""Rules of plans hold at their limits: the largest allowed size passes, and the smallest excess is refused.

Other tests break a rule in a way that no other rule detects.
"""

from dataclasses import replace

import pytest
from support.plan_edits import changed, every, island, meshed, on

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.check_branches import branch_problems
from pathways.dialect.plan.check_channels import channel_problems
from pathways.dialect.plan.check_places import MAX_DEVICES, place_problems
from pathways.dialect.plan.check_signature import port_problems
from pathways.dialect.plan.check_types import (
    MAX_ARRAY_BYTES,
    MAX_DIMENSIONS,
    axes_problem,
    layout_problem,
    type_problem,
)
from pathways.dialect.plan.instructions import Branch, Recv, Send
from pathways.dialect.plan.nouns import Plan


def test_an_island_over_the_device_limit_is_refused(pipe: Plan) -> None:
    assert not list(place_problems(island(pipe, devices=MAX_DEVICES, hosts=1)))
    ((what, _),) = place_problems(island(pipe, devices=MAX_DEVICES + 1, hosts=1))
    assert what.endswith(f"of 1 hosts with {MAX_DEVICES + 1} devices")


def test_memory_of_an_island_may_be_zero_but_not_negative(pipe: Plan) -> None:
    assert not list(place_problems(island(pipe, memory=0)))
    assert [rule for _, rule in place_problems(island(pipe, memory=-1))] == ["bytes from 0"]


@pytest.mark.parametrize("rate", ["ici_gbps", "flops"])
def test_rates_of_an_island_must_be_positive(rate: str, pipe: Plan) -> None:
    assert [rule for _, rule in place_problems(island(pipe, **{rate: 0.0}))] == ["positive numbers"]
    assert not list(place_problems(island(pipe, **{rate: 1e-9})))


def test_a_mesh_has_only_devices_of_its_slice(pipe: Plan) -> None:
    mesh = pipe.meshes[0]
    number = next(n for n, i in enumerate(pipe.topology.islands) if i.name == mesh.island)
    islands = list(pipe.topology.islands)
    islands[number] = replace(islands[number], devices=64, hosts=1)
    roomy = replace(pipe, topology=replace(pipe.topology, islands=tuple(islands)))
    (problem,) = place_problems(meshed(roomy, devices=tuple(range(32, 32 + len(mesh.devices)))))
    assert problem[1] == f"devices of slice {mesh.slice}, on {mesh.island}"


def test_arrays_and_meshes_over_the_size_limits_are_refused() -> None:
    assert type_problem(ArrayType((MAX_ARRAY_BYTES,), "int8")) is None
    assert type_problem(ArrayType((MAX_ARRAY_BYTES + 1,), "int8")) is not None
    assert type_problem(ArrayType((1,) * MAX_DIMENSIONS, "int8")) is None
    assert type_problem(ArrayType((1,) * (MAX_DIMENSIONS + 1), "int8")) is not None
    assert axes_problem((("x", 1),)) is None and axes_problem((("x", 0),)) is not None
    many = tuple((f"x{i}", 1) for i in range(MAX_DIMENSIONS + 1))
    assert axes_problem(many[1:]) is None and axes_problem(many) is not None


def test_an_island_may_not_send_to_itself(pipe: Plan) -> None:
    at = every(pipe, Send)[0]
    stream = pipe.streams[at.stream]
    send = replace(at.instruction, to=stream.island)
    recv = Recv(send.step, send.channel, send.slot, stream.island, None)
    alone = replace(pipe, streams=(replace(stream, instructions=(send, recv)),))
    assert [rule for _, rule in channel_problems(alone)] == ["ends that name each other, on two islands"]


def test_channels_without_two_ends_are_named_in_order(pipe: Plan) -> None:
    large = [replace(a.instruction, channel=1000 - n) for n, a in enumerate(every(pipe, Send)[:2])]
    stream = pipe.streams[every(pipe, Send)[0].stream]
    alone = replace(pipe, streams=(replace(stream, instructions=tuple(large)),))
    ((what, _),) = channel_problems(alone)
    assert what == "channels without both a send and a receive: [999, 1000]"


def test_an_axis_that_a_type_does_not_divide_is_refused_with_both() -> None:
    axes = (("x", 2),)
    assert layout_problem(ArrayType((4,), "float32"), (("x",),), axes) is None
    problem = layout_problem(ArrayType((3,), "float32"), (("x",),), axes)
    assert problem is not None and problem[1] == "shards of equal size"


def test_a_branch_with_wrong_operand_numbers_is_refused(plans: list[Plan]) -> None:
    looped = plans[4]
    at = next(a for a in every(looped, Branch) if a.instruction.taken)
    shifted = changed(looped, at, taken=tuple(i + 50 for i in at.instruction.taken))
    assert "consecutive numbers from 0" in [rule for _, rule in branch_problems(shifted)]


def test_the_test_of_a_loop_may_not_donate_carried_values(plans: list[Plan]) -> None:
    """The body may overwrite carried values. The test runs before the body, which still reads them."""
    looped = plans[4]
    loop = next(a.instruction for a in every(looped, Branch) if a.instruction.kind == "while")
    for body, allowed in zip(loop.bodies, (False, True), strict=True):
        bodies = list(looped.bodies)
        carried = replace(bodies[body].inputs[-1], donated=True)
        bodies[body] = replace(bodies[body], inputs=(*bodies[body].inputs[:-1], carried))
        rules = [rule for _, rule in branch_problems(replace(looped, bodies=tuple(bodies)))]
        assert ("a loop that overwrites only what it carries" in rules) != allowed


def test_arguments_need_valid_slots_and_constants_need_their_size(pipe: Plan, plans: list[Plan]) -> None:
    port = next(p for p in pipe.inputs if p.slot >= 0)
    number = next(n for n, s in enumerate(pipe.streams) if s.island == port.island)
    beside = [p for p in pipe.inputs if p != port]
    behind = replace(port, slot=len(pipe.streams[number].buffers))
    assert "a slot that exists" in [rule for _, rule in port_problems(replace(pipe, inputs=(behind, *beside)))]
    twice = replace(pipe, inputs=(port, port))
    assert "a different slot for each" in [rule for _, rule in port_problems(twice)]
    holding = next(p for p in plans if p.constant_buffers)
    held = holding.constant_buffers[0].member
    short = replace(holding, constants=holding.constants | {held: holding.constants[held] + b"0"})
    assert any(what == f"constant {held} of the wrong size" for what, _ in port_problems(short))
    assert not list(port_problems(on(holding, 0)))


def test_a_body_takes_each_operand_from_its_island(plans: list[Plan]) -> None:
    """Buffers that differ only in their island are not interchangeable."""
    looped = plans[4]
    tried = 0
    for at in every(looped, Branch):
        for body in at.instruction.bodies:
            for number, port in enumerate(looped.bodies[body].inputs):
                for stream in looped.bodies[body].streams:
                    for slot, buffer in enumerate(stream.buffers):
                        if port.slot < 0 or stream.island == port.island or buffer.type != port.type:
                            continue
                        tried += 1
                        elsewhere = replace(port, island=stream.island, slot=slot)
                        inputs = looped.bodies[body].inputs
                        moved = replace(
                            looped.bodies[body], inputs=(*inputs[:number], elsewhere, *inputs[number + 1 :])
                        )
                        bodies = (*looped.bodies[:body], moved, *looped.bodies[body + 1 :])
                        found = list(branch_problems(replace(looped, bodies=bodies)))
                        assert any(rule.endswith(f"on {stream.island}, as the body has it") for _, rule in found)
    assert tried
