"""Classes, ops and messages of instructions declare the same fields. A new instruction needs no other code."""

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import pytest

from pathways.compiler import instruction_ops
from pathways.compiler.instruction_ops import InstructionWriter, read_instruction
from pathways.dialect.diagnostics import Where
from pathways.dialect.ir import pw
from pathways.dialect.ir.declare import INTEGER, INTEGERS, Field, OptionalField, PwOp
from pathways.dialect.mlir import ir, make_context
from pathways.dialect.plan.codec import schema
from pathways.dialect.plan.instructions import INSTRUCTIONS, Branch, Copy, Effects, Free, Recv, Refers, Run, Send

LINE = Where("model.py", 3, "step")
TABLES = {"meshes": ["m0", "m1"], "computations": ["f", "g"], "bodies": ["one", "two"]}
EXAMPLES = [
    Run(4, 1, 0, (0, 1), (2,), (1,), "g", LINE, 64, "2F3", ("2F3 f model.py:1",)),
    Run(4, 0, 1, (), (), (), "f", None),
    Send(5, 7, 2, "pod", LINE),
    Recv(5, 7, 0, "island0", LINE),
    Copy(6, 1, 2, LINE),
    Free(6, (1, 2)),
    Branch(8, "cond", (0, 1), (0, 3), (1, 0), (4,), (0,), (1,), "pick", LINE, 32, (1,)),
]


def attributes_of(cls: Any) -> set[str]:
    hints = get_type_hints(cls, include_extras=True)
    found: set[str] = set()
    for one in fields(cls):
        marks = [m for m in getattr(hints[one.name], "__metadata__", ()) if isinstance(m, Refers)]
        found.add(marks[0].attribute or one.name if marks else one.name)
    return found - {"name", "where"}


@pytest.mark.parametrize("cls", INSTRUCTIONS)
def test_op_and_message_have_the_fields_of_the_instruction(cls: Any) -> None:
    ops = {op.OPERATION_NAME: op for op in pw.OPS}
    assert set(ops[f"pw.{cls.KIND}"].fields()) == attributes_of(cls)
    assert [f.name for f in schema()[cls.__name__].fields] == [f.name for f in fields(cls)]
    assert {f.name for f in schema()["Instruction"].fields} == {c.KIND for c in INSTRUCTIONS}


def test_the_docs_of_plan_ops_list_exactly_the_instructions() -> None:
    kinds = {f"pw.{cls.KIND}" for cls in INSTRUCTIONS}
    documented = set(re.findall(r"pw\.\w+", pw.PlanOp.__doc__ or ""))
    assert documented == kinds | {"pw.buffers"}
    assert {op.OPERATION_NAME for op in pw.OPS if "instruction" in (op.__doc__ or "")} <= kinds | {"pw.plan"}


@pytest.mark.parametrize("instruction", EXAMPLES, ids=lambda i: type(i).__name__)
def test_an_instruction_is_read_back_from_its_op(instruction: Any) -> None:
    assert written_and_read(instruction) == instruction


def written_and_read(instruction: Any) -> Any:
    context = make_context()
    with context, ir.Location.unknown():
        module = ir.Module.create()
        InstructionWriter(context, TABLES).write(instruction, ir.InsertionPoint(module.body))
        numbers = {name: {symbol: i for i, symbol in enumerate(table)} for name, table in TABLES.items()}
        (op,) = module.body.operations
        assert not op.problems()
        return read_instruction(op, numbers)


def test_effects_list_slots_that_are_read_written_and_dropped() -> None:
    assert [i.effects for i in EXAMPLES] == [
        Effects((0, 1), (2,), (1,)),
        Effects((), (), ()),
        Effects((2,), (), ()),
        Effects((), (0,), ()),
        Effects((1,), (2,), ()),
        Effects((1, 2), (), (1, 2)),
        Effects((0, 3), (4,), (3,)),
    ]


@dataclass(frozen=True)
class Fill:
    """An instruction that exists only in this test: fills slots with a number."""

    KIND: ClassVar[str] = "fill"
    step: int
    slots: tuple[int, ...]
    where: Where | None
    number: int = 0

    @property
    def effects(self) -> Effects:
        return Effects((), self.slots, ())


class FillOp(PwOp):
    """Fill buffers with a number."""

    OPERATION_NAME = "pw.fill"
    step = Field(INTEGER, "its position in the order of the program")
    slots = Field(INTEGERS, "the buffers filled")
    number = OptionalField(INTEGER, "what they are filled with")


def test_a_new_instruction_needs_only_a_class_and_an_op(monkeypatch: pytest.MonkeyPatch) -> None:
    """The translation between class and op is derived from their fields."""
    monkeypatch.setitem(instruction_ops._OPS, "pw.fill", FillOp)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setitem(instruction_ops._CLASSES, "pw.fill", Fill)  # pyright: ignore
    context = make_context()
    with context, ir.Location.unknown():
        module = ir.Module.create()
        made: Any = Fill(3, (1, 2), LINE, 7)
        InstructionWriter(context, TABLES).write(made, ir.InsertionPoint(module.body))
        (op,) = module.body.operations
        assert read_instruction(FillOp(op.operation), {}) == made


def test_only_instructions_py_lists_all_instructions(root: Path) -> None:
    """No other source file has a line that names all instructions."""
    names = [cls.__name__ for cls in INSTRUCTIONS]
    for folder in ("dialect", "compiler", "runtime", "cli", "pathways/api"):
        for path in (root / folder).rglob("*.py"):
            lines = (line for line in path.read_text().splitlines() if not line.startswith("from"))
            tables = [line for line in lines if all(re.search(rf"\b{name}\b", line) for name in names)]
            assert not tables or path.name == "instructions.py", (path, tables)
