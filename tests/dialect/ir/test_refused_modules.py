"""Every rule of the verifier refuses a module: a small valid module that is broken in one place."""

import ast
import inspect
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.small_modules import BRANCHING, STRAIGHT

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import InvalidIR
from pathways.dialect.ir import verify as rules
from pathways.dialect.ir import verify_plan, verify_shardings
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import parse_text
from pathways.dialect.phases import Phase


def problems_of(module: str) -> list[str]:
    """Returns the problems that the verifier finds in a module."""
    program = ProgramIR(parse_text(module, "small"))
    try:
        rules.verify(program)
    except PathwaysError as error:
        assert error.code == "PWC0701"
        return [d.problem for d in error.diagnostics if isinstance(d, InvalidIR)]
    return []


Breakage = tuple[str, ...]
"""Pairs of old and new text to replace, followed by the problem that the verifier then reports."""

S0 = 'sym_name = "s0", devices = 2 : i64, island = @left, device_ids = "0:2"'
M0 = 'slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"'
DOUBLE = "callee = @double, mesh = @m0, island = @left"
IN = 'in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>'
OUT = 'out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>'
SOURCE = 'source = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>'
X = 'pw.sharding = #sdy.sharding<@m0, [{"x"}]>'
RETYPED = (
    "-> tensor<8xf32>\n    %c",
    "-> tensor<8xi32>\n    %c",
    "8xf32>) -> tensor<8xf32>\n    return %c",
    "8xi32>) -> tensor<8xf32>\n    return %c",
)
MESH = 'sdy.mesh @mesh = <["x"=2]>\n'
TAKES = '(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})'
MAKES = '-> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})'
TRACED = ('pw.phase = "plan"', 'pw.phase = "trace"')
MANY = 1 << 40

BROKEN_STRAIGHT: dict[str, Breakage] = {
    "no program": ("attributes {pw.program}", "", "has no function marked pw.program"),
    "no devices": (S0, S0.replace("2 : i64", "0 : i64"), "has 0 devices"),
    "too many devices": (S0, S0.replace("2 : i64", f"{MANY} : i64"), f"has {MANY} devices"),
    "no hosts": ('"left", hosts = 1', '"left", hosts = 0', "has 0 hosts of 4 devices"),
    "no devices a host": ("devices = 4", "devices = 0", "has 1 hosts of 0 devices"),
    "too many of both": ('"left", hosts = 1', f'"left", hosts = {MANY}', f"has {MANY} hosts of 4 devices"),
    "slice of a mesh": (M0, M0.replace("s0", "s9"), "names the slice @s9, which does not exist"),
    "axes of a mesh": (M0, M0.replace("=2", "=4"), "has axes of 4 devices and 2 devices"),
    "a device twice in a mesh": (M0, M0.replace("0:2", "0,0"), "has axes of 2 devices and 2 devices"),
    "a device behind a slice": (M0, M0.replace("0:2", "1:3"), "names devices 1:3 of a slice of 2"),
    "mesh of a call": (DOUBLE, DOUBLE.replace("m0", "m9"), "names the mesh @m9, which does not exist"),
    "type of a transfer": (*RETYPED, "returns int32[8] for float32[8]"),
    "types of a call": (*RETYPED, "has types ['int32[8]'] -> ['float32[8]']"),
    "a stage left out": (*TRACED, '"1F0"', '"2F0"', "is of stage 2, and there are 2"),
    "a microbatch left out": (*TRACED, '"1F0"', '"1F2"', "is of microbatch 2, and there are 2"),
    "callee": (DOUBLE, DOUBLE.replace("double", "nothing"), "calls @nothing, which does not exist"),
    "what is no action": ('"0F0"', '"0X0"', "has the action 0X0"),
    "slice of a stage": ('"1F0"', '"0F1"', "puts stage 0 on @s1"),
    "parts of a call": (
        '"1F0"',
        '"1F0", parts = ["f"]',
        "has a part that cannot be read: 'f' is not like ACTION NAME FILE:LINE FUNCTION",
    ),
    "mesh of an argument": ('"x", pw.mesh = @m0', '"x", pw.mesh = @m9', "puts x on @m9, which does not exist"),
    "an argument without a mesh": (f'"x", pw.mesh = @m0, {X}', '"x"', "uses x, which has no mesh"),
    "a piece alone": (
        '"x", pw.mesh',
        '"x", pw.piece = "[\\22x\\22,0,0,9]", pw.mesh',
        "has pieces of x that make up 8 of 9",
    ),
    "size of a constant": ('"07000000"', '"0700"', "has a constant n of the wrong size"),
    "a constant that nothing uses": (
        "pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>,",
        "",
        "keeps the constant n, which is not used",
    ),
    "no sharding of operands": (f"{IN},\n", "", "does not state a sharding for each operand"),
    "no sharding of results": (f",\n      {OUT}", "", "does not state a sharding for each result"),
    "sharding on another mesh": (IN, IN.replace('m0, [{"x"}]', 'm1, [{"y"}]'), "puts operand 0 on @m1"),
    "sharding on no mesh": (IN, IN.replace("m0", "m9"), "puts operand 0 on @m9, which does not exist"),
    "an axis that is not there": (OUT, OUT.replace('"x"', '"q"'), "splits result 0 of shape [8] as (('q',),)"),
    "a dimension too few": (OUT, OUT.replace('[{"x"}]', "[]"), "splits result 0 of shape [8] as ()"),
    "an argument without a sharding": (f", {X}", "", "gives x no sharding on its mesh"),
    "an argument on two meshes": (X, X.replace("m0", "m1"), "gives x no sharding on its mesh"),
    "a sharding without a mesh": ('pw.name = "z"', f'pw.name = "z", {X}', "splits z, which has no mesh"),
    "what has no name": ('"x", pw.mesh = @m0', '"", pw.mesh = @m9', "puts argument 0 on @m9, which does not exist"),
    "partitions of a computation": (
        "@double attributes {mhlo.num_partitions = 2",
        "@double attributes {mhlo.num_partitions = 4",
        "calls @double, which runs on 4 devices",
    ),
    "no partitions of a computation": (
        "@double attributes {mhlo.num_partitions = 2 : i32}",
        "@double",
        "calls @double, which does not state its number of devices",
    ),
    "a computation without a mesh": (
        MESH,
        "",
        TAKES,
        "(%a: tensor<8xf32>)",
        MAKES,
        "-> (tensor<8xf32>)",
        "calls @double, which has no sdy.mesh of x=2",
    ),
    "a computation with a mesh of other axes": (
        MESH,
        MESH.replace('"x"=2', '"z"=1,"x"=2'),
        "calls @double, which has no sdy.mesh of x=2",
    ),
    "a computation that is open": (
        TAKES,
        TAKES.replace('"x"', '"x", ?'),
        "calls @double, which states no sharding of argument 0",
    ),
    "an argument of a computation": (
        TAKES,
        "(%a: tensor<8xf32>)",
        "calls @double, which states no sharding of argument 0",
    ),
    "a result of a computation": (MAKES, "-> (tensor<8xf32>)", "calls @double, which states no sharding of result 0"),
    "a computation that says otherwise": (
        MAKES,
        MAKES.replace('"x"', ""),
        "calls @double, which splits result 0 as ((),)",
    ),
    "a computation of two meshes": (
        MESH,
        f'{MESH}sdy.mesh @other = <["x"=2, "y"=2]>\n',
        MAKES,
        MAKES.replace("@mesh", "@other"),
        "calls @double, which splits result 0 as (('x',),)",
    ),
    "an axis of a transfer when traced": (
        *TRACED,
        "sharding = #sdy.sharding_per_value<[<@m1, [{}]>]>,\n      source",
        'sharding = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>,\n      source',
        "splits result 0 of shape [8] as (('x',),)",
    ),
    "an axis of a call when traced": (
        *TRACED,
        OUT,
        OUT.replace('"x"', '"y"'),
        "splits result 0 of shape [8] as (('y',),)",
    ),
    "a sharding too few when traced": (
        *TRACED,
        "sharding = #sdy.sharding_per_value<[<@m1, [{}]>]>,\n      source",
        "sharding = #sdy.sharding_per_value<[]>,\n      source",
        "states 0 shardings of 1 results",
    ),
    "an argument on another mesh when traced": (*TRACED, X, X.replace("m0", "m1"), "splits x over @m1"),
    "a sharding of a result when traced": (
        *TRACED,
        'pw.name = "z"}) -> tensor<8xf32>',
        f'pw.name = "z"}}) -> (tensor<8xf32> {{{X}}})',
        "states a sharding of result 0",
    ),
    "another mesh when traced": (*TRACED, IN, IN.replace('m0, [{"x"}]', 'm1, [{"y"}]'), "puts operand 0 on @m1"),
    "an argument in uneven parts": ("8xf32", "7xf32", "splits dimension 0 of operand 0 (7) in 2"),
    "island of a slice": (S0, S0.replace("left", "nowhere"), "is not bound to an island"),
    "devices of a slice": (S0, S0.replace(', device_ids = "0:2"', ""), "is not bound to an island"),
    "a device too few": (S0, S0.replace("0:2", "0:1"), "is bound to 1 devices, 0"),
    "a device twice": (S0, S0.replace("0:2", "0,0"), "is bound to 2 devices, 0,0"),
    "a device behind the island": (S0, S0.replace("0:2", "3:5"), "is bound to devices 3:5 of left"),
    "a device of two slices": ('"2:4"', '"1:3"', "shares device 1 of left with @s0"),
    "island of a call": (DOUBLE, DOUBLE.replace("left", "right"), "is on @right, its slice is on @left"),
    "no route": (' route = "dcn",', "", "does not state its route, bytes and source"),
    "no bytes": (" bytes = 64 : i64,", "", "does not state its route, bytes and source"),
    "no source": (f"{SOURCE}, ", "", "does not state its route, bytes and source"),
    "another source": (SOURCE, SOURCE.replace('{"x"}', "{}"), "states a wrong source"),
    "an operand elsewhere": (
        IN,
        IN.replace('{"x"}', "{}"),
        TAKES,
        TAKES.replace('{"x"}', "{}"),
        "reads operand 0 from another place",
    ),
    "no plan of an island": ("{island = @left, peak", "{island = @right, peak", "has no pw.plan for @left"),
    "a plan of no body": (
        "{island = @left, peak",
        "{body = @gone, island = @left, peak",
        "is for the body @gone, which does not exist",
    ),
    "a value without a buffer": (
        "array<i64: 32, 32>",
        "array<i64: 32>",
        "8xf32>, tensor<8xf32>]",
        "8xf32>]",
        "array<i64: 2, -1>",
        "array<i64: 2>",
        "[<@m1, [{}]>, <@m1, [{}]>]",
        "[<@m1, [{}]>]",
        "declares 1 buffers",
    ),
    "no step": ("bytes = 64 : i64, step = 1 : i64", "bytes = 64 : i64", "has no step"),
    "a step twice": ('"1F0", step = 2', '"1F0", step = 1', "has step 1 after step 1"),
    "a plan of no island": (
        "{island = @left, peak",
        "{island = @nowhere, peak",
        "is for @nowhere, which does not exist",
    ),
    "a slot left out": ("slot = 1 : i64, name", "slot = 2 : i64, name", "begins at slot 2"),
    "a death too few": (
        "deaths = array<i64: 2, -1>",
        "deaths = array<i64: 2>",
        "lists 2, 2, 2, 2, 1 types, shards, shardings, bytes and deaths",
    ),
    "a buffer on no mesh": (
        "<@m1, [{}]>, <@m1, [{}]>",
        "<@m1, [{}]>, <@m9, [{}]>",
        "puts float32[8] on Placed(mesh='m9', dims=((),))",
    ),
    "a buffer of other dimensions": (
        "<@m1, [{}]>, <@m1, [{}]>",
        "<@m1, [{}]>, <@m1, []>",
        "puts float32[8] on Placed(mesh='m1', dims=())",
    ),
    "parts of a run": (
        "array<i64: 1>,\n      donated",
        'array<i64: 1>, parts = ["f"],\n      donated',
        "has a part that cannot be read: 'f' is not like ACTION NAME FILE:LINE FUNCTION",
    ),
    "callee of a run": ("0 : i64, callee = @double", "0 : i64, callee = @gone", "runs @gone, which does not exist"),
    "mesh of a run": (
        "@twice, mesh = @m1, inputs",
        "@twice, mesh = @m9, inputs",
        "names the mesh @m9, which does not exist",
    ),
    "a module for one device of nothing": (
        "module @double attributes {",
        'module @alone attributes {pw.per_device_of = "gone"} {}\n  module @double attributes {',
        "is for one device of @gone, which does not exist",
    ),
    "island of a send": ("to = @right", "to = @nowhere", "names @nowhere, which does not exist"),
    "island of a receive": ("source = @left", "source = @nowhere", "names @nowhere, which does not exist"),
}

CARRIED = 'in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, [{"x"}]>]>'
LOOP = "(tensor<i32>, tensor<8xf32>) -> tensor<8xf32>\n    %c"
PICK = "(tensor<i32>, tensor<i32>, tensor<8xf32>)"
TURNED = 'pw.name = "v", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, [{"x"}]>'

BROKEN_BRANCHING: dict[str, Breakage] = {
    "an argument of a body when traced": (*TRACED, "states a sharding of i"),
    "mesh of a result": (
        "meshes = [@m0], step = 0",
        "meshes = [@m9], step = 0",
        "names the mesh @m9, which does not exist",
    ),
    "a loop of one body": (
        "[@test, @turn], meshes = [@m0], step",
        "[@test], meshes = [@m0], step",
        "has the bodies ('test',)",
    ),
    "a loop of three bodies": (
        "[@test, @turn], meshes = [@m0], step",
        "[@test, @turn, @turn], meshes = [@m0], step",
        "has the bodies ('test', 'turn', 'turn')",
    ),
    "a branch of no bodies": ("[@turn, @turn]", "[]", "has the bodies ()"),
    "a body that is not there": ("[@turn, @turn]", "[@turn, @gone]", "has the bodies ('turn', 'gone')"),
    "a mesh too many": ("meshes = [@m0], step = 0", "meshes = [@m0, @m0], step = 0", "names 2 meshes"),
    "what a loop carries": (
        '"pw.while"(%i, %x)',
        '"pw.while"(%x, %i)',
        LOOP,
        LOOP.replace("(tensor<i32>, tensor<8xf32>)", "(tensor<8xf32>, tensor<i32>)"),
        "returns other types than it carries",
    ),
    "what decides": (
        '"pw.cond"(%i, ',
        '"pw.cond"(%w, ',
        PICK,
        PICK.replace("i32", "8xf32", 1),
        "has a condition of type float32[8]",
    ),
    "what a body takes": (
        "%i, %w)",
        "%w, %w)",
        PICK,
        PICK.replace(", tensor<i32>", ", tensor<8xf32>"),
        "runs @turn, which takes or makes other types",
    ),
    "what a test makes": (
        "bodies = [@test, @turn], meshes = [@m0], step",
        "bodies = [@turn, @turn], meshes = [@m0], step",
        "runs @turn, which takes or makes other types",
    ),
    "what a body makes": (
        "bodies = [@turn, @turn]",
        "bodies = [@test, @test]",
        "runs @test, which takes or makes other types",
    ),
    "where a loop leaves what it carries": (CARRIED, CARRIED.replace('{"x"}', "{}"), "carries values to other places"),
    "where a body takes a value": (
        TURNED,
        TURNED.replace('{"x"}', "{}"),
        "passes @turn a value from another place",
    ),
    "where a body makes a value": ('[{"x"}]>]>\n', "[{}]>]>\n", "takes a result of @turn in another place"),
    "bodies of an instruction": (
        "[@test, @turn], inputs",
        "[@test, @gone], inputs",
        "runs ['gone'], which do not exist",
    ),
    "meshes of an instruction": (
        "meshes = [@m0],\n",
        "meshes = [@m9],\n",
        "names the meshes ['m9'], which do not exist",
    ),
}


def broken(base: str, breakage: Breakage) -> str:
    *edits, _ = breakage
    for old, new in zip(edits[::2], edits[1::2], strict=True):
        assert old in base, old
        base = base.replace(old, new)
    return base


MODULES = {n: (STRAIGHT, b) for n, b in BROKEN_STRAIGHT.items()} | {
    n: (BRANCHING, b) for n, b in BROKEN_BRANCHING.items()
}


def test_the_unbroken_modules_are_valid() -> None:
    for module in (STRAIGHT, BRANCHING):
        assert problems_of(module) == [] and ProgramIR(parse_text(module, "small")).phase is Phase.PLAN


@pytest.mark.parametrize("case", MODULES)
def test_a_module_that_breaks_a_rule_is_refused(case: str) -> None:
    base, breakage = MODULES[case]
    assert breakage[-1] in problems_of(broken(base, breakage))


@contextmanager
def lines_run_in(*files: str) -> Generator[set[tuple[str, int]]]:
    """Collects the lines of the given files that run inside the block."""
    seen: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            seen.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield seen
    finally:
        sys.settrace(before)


def test_every_rule_has_a_refusing_module() -> None:
    """Checks that the broken modules reach every place where the verifier yields a problem."""
    files = [inspect.getfile(m) for m in (rules, verify_plan, verify_shardings)]
    with lines_run_in(*files) as seen:
        for base, breakage in MODULES.values():
            problems_of(broken(base, breakage))
    for file in files:
        source = Path(file).read_text()
        yields = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Yield) and isinstance(n.value, ast.Tuple)]
        assert len(yields) > 8
        for node in yields:
            text = ast.get_source_segment(source, node) or ""
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            met = any((file, line) in seen for line in lines)
            assert met, f"no module is refused by {file}:{node.lineno}: {text}"
