"""Interprets a plan literally: one instruction after another on whole arrays, computations in plain JAX.

Shares no code with the runtime for order, waves, layouts or donation. A run of the plan must give the same results.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pathways.api.reference import exported
from pathways.dialect.dtypes import numpy_dtype
from pathways.dialect.plan.instructions import Branch, Copy, Free, Instruction, Recv, Run, Send
from pathways.dialect.plan.nouns import Plan


class Stuck(Exception):
    """The plan is invalid: it reads an empty slot, or its streams wait for each other."""


class Endless(Exception):
    """The plan needs more instructions than the interpreter's limit."""


_called: dict[Any, Any] = {}


def call(plan: Plan, run: Run, values: list[Any]) -> list[Any]:
    """Runs a computation on JAX's own devices, with the computation's count of devices."""
    computation = plan.computations[run.computation]
    count = int(np.prod([n for _, n in computation.axes], dtype=int))
    key = computation.module, computation.axes, computation.in_layouts, computation.inputs, computation.outputs
    if key not in _called:
        mesh = Mesh(np.array(jax.devices()[:count]).reshape([n for _, n in computation.axes]), _names(computation.axes))
        splits = [NamedSharding(mesh, P(*(tuple(d) or None for d in dims))) for dims in computation.in_layouts]
        anchor = NamedSharding(mesh, P()) if not splits else None
        function = exported(computation, plan.platform, count).call
        _called[key] = splits, jax.jit(function) if splits else jax.jit(function, out_shardings=anchor)
    splits, function = _called[key]
    return [np.asarray(r) for r in function(*[jax.device_put(v, s) for v, s in zip(values, splits, strict=True)])]


def _names(axes: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    return tuple(name for name, _ in axes)


@dataclass
class Interpreter:
    """Runs a plan; `left` is the count of instructions that it may still execute."""

    left: int = 2000

    def run(self, plan: Plan, arguments: Sequence[Any]) -> list[Any]:
        return _Function(self, plan).run(arguments)

    def count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Endless


@dataclass
class _Function:
    """The state of the program or of one body while it runs."""

    whole: Interpreter
    plan: Plan
    values: dict[tuple[str, int], Any] = field(default_factory=dict[tuple[str, int], Any])
    sent: dict[tuple[int, str, str], list[Any]] = field(default_factory=dict[tuple[int, str, str], list[Any]])

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        plan = self.plan
        for port, value in zip(plan.inputs, arguments, strict=True):
            if port.slot >= 0:
                self.values[port.island, port.slot] = value
        for held in plan.constant_buffers:
            type_ = plan.stream(held.island).buffers[held.slot].type
            raw = np.frombuffer(plan.constants[held.member], numpy_dtype(type_.dtype))
            self.values[held.island, held.slot] = raw.reshape(type_.shape)
        todo = {s.island: list(s.instructions) for s in plan.streams}
        while any(todo.values()):
            if not any(self._step(island, todo) for island in todo if todo[island]):
                raise Stuck(f"nothing can go on: { ({i: rest[:1] for i, rest in todo.items()}) }")
        try:
            return [self.values[p.island, p.slot] for p in plan.results]
        except KeyError as error:
            raise Stuck(f"no result in {error}") from None

    def _step(self, island: str, todo: dict[str, list[Instruction]]) -> bool:
        """Executes an island's next instruction if it is ready; returns whether it was."""
        instruction = todo[island][0]
        try:
            done = self._branch(instruction, todo) if isinstance(instruction, Branch) else self._do(island, instruction)
        except KeyError as error:
            raise Stuck(f"{instruction} of {island} reads {error}") from None
        if done and not isinstance(instruction, Branch):
            todo[island].pop(0)
        return done

    def _do(self, island: str, i: Instruction) -> bool:
        self.whole.count()
        match i:
            case Run():
                results = call(self.plan, i, [self.values[island, s] for s in i.inputs])
                for position in i.donated:
                    del self.values[island, i.inputs[position]]
                self.values.update(((island, s), r) for s, r in zip(i.outputs, results, strict=True))
            case Send():
                self.sent.setdefault((i.channel, island, i.to), []).append(self.values[island, i.slot])
            case Recv():
                waiting = self.sent.get((i.channel, i.source, island))
                if not waiting:
                    return False
                self.values[island, i.slot] = waiting.pop(0)
            case Copy():
                self.values[island, i.target] = self.values[island, i.source]
            case Free():
                for slot in i.slots:
                    del self.values[island, slot]
            case Branch():
                raise AssertionError("a branch is of all its islands")
        return True

    def _branch(self, branch: Branch, todo: dict[str, list[Instruction]]) -> bool:
        """Runs a branch when all its islands have reached it; returns whether it ran."""
        there = {i for i, rest in todo.items() if any(isinstance(x, Branch) and x.step == branch.step for x in rest)}
        parts: list[tuple[str, Branch]] = []
        for island in there:
            following = todo[island][0]
            if not isinstance(following, Branch) or following.step != branch.step:
                return False
            parts.append((island, following))
        self.whole.count()
        given = {n: self.values[i, s] for i, part in parts for n, s in zip(part.taken, part.inputs, strict=True)}
        made = self._chosen(branch, [given[n] for n in sorted(given)])
        for island, part in parts:
            for position in part.donated:
                self.values.pop((island, part.inputs[position]), None)
            self.values.update(((island, s), made[n]) for n, s in zip(part.made, part.outputs, strict=True))
            todo[island].pop(0)
        return True

    def _chosen(self, branch: Branch, operands: list[Any]) -> list[Any]:
        bodies = [self.plan.of_body(number) for number in branch.bodies]
        if branch.kind == "cond":
            return self.whole.run(bodies[min(max(int(operands[0]), 0), len(bodies) - 1)], operands[1:])
        test, body = bodies
        fixed = len(operands) - len(body.results)
        while self.whole.run(test, operands)[0]:
            self.whole.count()
            operands = [*operands[:fixed], *self.whole.run(body, operands)]
        return operands[fixed:]
