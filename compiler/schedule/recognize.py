"""Finds the pipeline in a program: the stage, the microbatch and the direction of each call. The pass `find-pipeline`
calls it. It reads only the dataflow.

Names are not used. An unrolled loop, from `lax.scan` or written by hand, leaves placed calls that are alike. They run
the same computation on the same slice, on the same arguments or on results of calls that are alike. As many alike as
there are microbatches make a class. Calls of two classes belong to one microbatch if each depends on its own partner.
Stages are runs of classes on one slice. A run is backward if it takes values that an earlier run on its slice left.

Microbatches are numbered in the order in which the program finishes them. Gradients are added up in that order, and a
loop that JAX transposed runs backward in time.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pathways.dialect.call_labels import Action
from pathways.dialect.ir.flow import Node
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import name_of, where_of

_SEVERAL = -1
"""Marks several calls of a class in place of one. An accumulator depends on several."""


@dataclass(frozen=True)
class Recognized:
    """The action of each call of the pipeline, by node number. Gathered calls that belong to one call are included."""

    actions: dict[int, Action]


def recognize(program: ProgramIR) -> Recognized | None:
    """Returns the pipeline of a program from phase `trace` on; None if there is no loop over microbatches."""
    for by_name in (True, False):
        near = _Near(program, by_name)
        classes = _classes(near)
        labels = None if classes is None else _microbatches(near, classes)
        if classes is not None and labels is not None:
            return _actions(program, near, classes, labels)
    return None


def _actions(program: ProgramIR, near: "_Near", classes: dict[int, list[int]], labels: dict[int, int]) -> Recognized:
    members = {c: sorted(m, key=labels.__getitem__) for c, m in classes.items() if all(n in labels for n in m)}
    first = {c: m[0] for c, m in members.items()}
    stages = _Stages(program, near, first).find()
    actions: dict[int, Action] = {}
    for class_, (stage, kind) in stages.items():
        for node in members[class_]:
            actions[node] = Action(stage, kind, labels[node])
    _attach(program, near, actions)
    return Recognized(actions)


class _Near:
    """The nearest placed calls, by class, that each node depends on through gathered calls and transfers.

    `by_name`: calls are alike if they take the same arguments. Otherwise arguments of the same types suffice, for
    programs in which every microbatch is an argument of its own.
    """

    def __init__(self, program: ProgramIR, by_name: bool) -> None:
        self.program = program
        self.by_name = by_name
        self.flow = program.flow
        self.arguments = program.arguments
        self.placed = [bool(n.callee) and not n.op.gathered for n in self.flow.nodes]
        self.class_of: dict[int, int] = {}
        self.before: list[dict[int, int]] = []
        """For each node: class -> the call of that class, or _SEVERAL."""
        self._reach: list[frozenset[Any]] = []
        self._known: dict[Any, int] = {}
        self._results: dict[tuple[int, int], list[Any]] = {}
        """The keys of the results of a class: calls of one class share them."""
        self._origins: list[Any] = [self._argument(v) if self.is_input(v) else None for v in self.flow.arguments]
        """A key of each value, equal in all iterations. Constants do not count: an iteration's index is one."""
        for node in self.flow.nodes:
            self._read(node)

    def _intern(self, key: Any) -> int:
        return self._known.setdefault(key, len(self._known))

    def _read(self, node: Node) -> None:
        makers = self.flow.waits[node.number]
        self.before.append(self._merged(makers))
        if self.placed[node.number]:
            key = (node.callee, node.mesh, tuple(map(self._origins.__getitem__, node.operands)))
            self.class_of[node.number] = class_ = self._intern(key)
            self._reach.append(frozenset((class_,)))
            made = class_, len(node.results)
            if made not in self._results:
                self._results[made] = [(class_, i) for i in range(len(node.results))]
            self._origins += self._results[made]
        else:
            arguments = {self._argument(v) for v in node.operands if self.is_input(v)}
            self._reach.append(frozenset(arguments).union(*(self._reach[m] for m in makers)))
            self._origins += [self._intern(self._reach[-1])] * len(node.results)

    def _argument(self, value: int) -> Any:
        return ("argument", value if self.by_name else self.flow.types[value])

    def is_input(self, value: int) -> bool:
        return self.flow.makers[value] < 0 and not self.arguments[value].is_constant

    def _merged(self, makers: Iterable[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        for maker in makers:
            near = {self.class_of[maker]: maker} if self.placed[maker] else self.before[maker]
            for class_, call in near.items():
                found[class_] = call if found.get(class_, call) == call else _SEVERAL
        return found


def _classes(near: _Near) -> dict[int, list[int]] | None:
    """Returns the classes with one member for each microbatch, members in program order."""
    members: dict[int, list[int]] = {}
    for node, class_ in near.class_of.items():
        members.setdefault(class_, []).append(node)
    calls: Counter[int] = Counter()
    for nodes in members.values():
        calls[len(nodes)] += len(nodes)
    sizes = [size for size in calls if size > 1]
    if not sizes:
        return None
    chosen = max(sizes, key=lambda size: (calls[size], size))
    return {c: nodes for c, nodes in members.items() if len(nodes) == chosen}


def _microbatches(near: _Near, classes: dict[int, list[int]]) -> dict[int, int] | None:
    """Returns the microbatch of each call in the largest connected set of classes; None if they contradict."""
    pairs: dict[int, list[tuple[int, list[int]]]] = {c: [] for c in classes}
    """The neighbors of each class, and their members in the order of its own members."""
    for class_, nodes in classes.items():
        for other in near.before[nodes[0]]:
            if other == class_ or other not in classes:
                continue
            matched = [near.before[n].get(other, _SEVERAL) for n in nodes]
            if _SEVERAL not in matched and len(set(matched)) == len(matched):
                pairs[class_].append((other, matched))
                back = dict(zip(matched, nodes, strict=True))
                pairs[other].append((class_, [back[n] for n in classes[other]]))
    best: dict[int, int] = {}
    seen: set[int] = set()
    for start in sorted(classes, key=lambda c: classes[c][0]):
        if start in seen:
            continue
        labels = {n: i for i, n in enumerate(classes[start])}
        seen.add(start)
        waiting = [start]
        while waiting:
            class_ = waiting.pop()
            for other, matched in pairs[class_]:
                new = other not in seen
                for node, partner in zip(classes[class_], matched, strict=True):
                    if labels.setdefault(partner, labels[node]) != labels[node]:
                        return None
                if new:
                    seen.add(other)
                    waiting.append(other)
        if len(labels) > len(best):
            best = labels
    return _renumbered(best)


def _renumbered(labels: dict[int, int]) -> dict[int, int]:
    """Renumbers microbatches in the order in which the program finishes them."""
    last: dict[int, int] = {}
    for node, label in labels.items():
        last[label] = max(last.get(label, -1), node)
    order = {label: i for i, label in enumerate(sorted(last, key=last.__getitem__))}
    return {node: order[label] for node, label in labels.items()}


@dataclass
class _Run:
    """Classes on one slice without work of other slices in between: a stage, forward or backward."""

    slice: str
    classes: list[int] = field(default_factory=list[int])
    before: set[int] = field(default_factory=set[int])
    """Numbers of runs that it depends on directly."""


class _Stages:
    """The stages of one microbatch; `first` is the representative call of each class."""

    def __init__(self, program: ProgramIR, near: _Near, first: dict[int, int]) -> None:
        self.program = program
        self.near = near
        self.first = first
        self.order = sorted(first, key=first.__getitem__)
        self.runs: list[_Run] = []
        self.run_of: dict[int, int] = {}
        self.again = self._computed_again()

    def find(self) -> dict[int, tuple[int, str]]:
        """Returns for each class its stage and its kind, F or B."""
        for class_ in self.order:
            if class_ not in self.again:
                self._join(class_)
        backward_of = self._backward()
        forward = [i for i in range(len(self.runs)) if i not in backward_of]
        number = {run: stage for stage, run in enumerate(forward)}
        found: dict[int, tuple[int, str]] = {}
        taken: set[int] = set()
        for i, run in enumerate(self.runs):
            if i in number:
                first_backward = len(run.classes)
                if i not in backward_of.values() and (backward_of or len(self.runs) == 1):
                    first_backward = self._first_backward(run, bool(backward_of))
                for at, class_ in enumerate(run.classes):
                    found[class_] = number[i], "F" if at < first_backward else "B"
            elif backward_of[i] not in taken:
                taken.add(backward_of[i])
                found.update((class_, (number[backward_of[i]], "B")) for class_ in run.classes)
        for class_ in reversed(self.order):  # repeated work belongs to its first user
            users = (c for c in self.order if class_ in self.near.before[self.first[c]] and c in found)
            if class_ in self.again and (user := next(users, None)) is not None:
                found[class_] = found[user]
        return found

    def _computed_again(self) -> dict[int, int]:
        """Maps each class that repeats the work of another class to that class. `jax.checkpoint` leaves such calls.

        A repeated call is a call of the same function at the same line that takes the same values.
        """
        known: dict[Any, int] = {}
        found: dict[int, int] = {}
        for class_ in self.order:
            node = self.near.flow.nodes[self.first[class_]]
            values = frozenset(v for v in node.operands if self.near.flow.makers[v] >= 0 or self.near.is_input(v))
            key = node.mesh, name_of(node.op), where_of(node.op), values
            earlier = known.setdefault(key, class_)
            if earlier != class_ and values:
                found[class_] = earlier
        return found

    def _before(self, class_: int) -> set[int]:
        """Returns the classes whose results a class takes. Repeated work counts as the original."""
        return {self.again.get(c, c) for c in self.near.before[self.first[class_]] if c in self.first}

    def _producers(self, class_: int) -> list[int]:
        return [c for c in self._before(class_) if c in self.run_of]

    def _join(self, class_: int) -> None:
        """Adds a class to the latest run on its slice that it follows, if its other operands come from before that run.

        Then runs depend on earlier runs only.
        """
        here = self.program.slice_of(self.near.flow.nodes[self.first[class_]].mesh)
        needed = {self.run_of[c] for c in self._producers(class_)}
        same = [i for i in needed if self.runs[i].slice == here]
        chosen = max(same, default=-1)
        if chosen < 0 or any(i > chosen for i in needed):
            chosen = len(self.runs)
            self.runs.append(_Run(here))
        self.run_of[class_] = chosen
        self.runs[chosen].classes.append(class_)
        self.runs[chosen].before |= needed - {chosen}

    def _backward(self) -> dict[int, int]:
        """Maps each backward run to the forward run whose values it takes."""
        found: dict[int, int] = {}
        for i, run in enumerate(self.runs):
            candidates = [j for j in range(i) if self.runs[j].slice == run.slice and j not in found]
            left = [j for j in candidates if j in run.before]
            if not left:
                left = [j for j in candidates if self._differentiates(run, self.runs[j])]
            if left:
                found[i] = left[-1]
        return {**found, **self._named_alike(found)} if found else found

    def _named_alike(self, known: dict[int, int]) -> dict[int, int]:
        """Pairs backward runs that take no value of their forward run: the gradient of a sum needs no operand.

        Such a pair is the only two runs on a slice of one function called at one line. They compute different things.
        """
        open_: dict[Any, list[int]] = {}
        for i, run in enumerate(self.runs):
            calls = [self.near.flow.nodes[self.first[c]] for c in run.classes]
            names = frozenset((name_of(n.op), where_of(n.op)) for n in calls)
            open_.setdefault((run.slice, names), []).append(i)
        pairs = [runs for runs in open_.values() if len(runs) == 2]
        claimed = {*known, *known.values()}
        return {j: i for i, j in pairs if not claimed & {i, j} and self._callees(i).isdisjoint(self._callees(j))}

    def _callees(self, run: int) -> set[str]:
        return {self.near.flow.nodes[self.first[c]].callee for c in self.runs[run].classes}

    def _differentiates(self, run: _Run, earlier: _Run) -> bool:
        """Whether a run that takes no value of an earlier run still makes the gradients of all its arguments.

        This is true of a rematerialized stage, and of one whose gradient needs only its inputs. Both runs take a value
        in common, and the later run gives cotangents of the earlier run's arguments.
        """
        flow = self.near.flow
        nodes, others = ([flow.nodes[self.first[c]] for c in r.classes] for r in (run, earlier))
        taken = {v for n in others for v in n.operands if flow.makers[v] >= 0 or self.near.is_input(v)}
        arguments = [v for v in taken if flow.makers[v] < 0]
        if not arguments or not taken & {v for n in nodes for v in n.operands}:
            return False
        made = Counter(flow.types[v] for n in nodes for v in n.results)
        return not Counter(flow.types[v] for v in arguments) - made

    def _first_backward(self, run: _Run, has_backward: bool) -> int:
        """Returns the position in the last stage's run at which backward begins: at the first call that is a transpose.

        A transpose calls the same function at the same line as an earlier call, with another computation. Without one,
        backward begins at a call that takes a value of an earlier call than its predecessor. Otherwise it begins in the
        middle, if other stages have a backward.
        """
        nodes = [self.near.flow.nodes[self.first[c]] for c in run.classes]
        described = [(name_of(n.op), where_of(n.op)) for n in nodes]
        for at in range(1, len(nodes)):
            for earlier in range(at):
                same = described[at] == described[earlier] and nodes[at].callee != nodes[earlier].callee
                if same and run.classes[earlier] in self._before(run.classes[at]):
                    return at
        for at in range(2, len(nodes)):
            if any(c in self._before(run.classes[at]) for c in run.classes[: at - 1]):
                return at
        return len(nodes) // 2 if has_backward else len(nodes)


def _attach(program: ProgramIR, near: _Near, actions: dict[int, Action]) -> None:
    """Gives each gathered call that belongs to one microbatch the action of a call that it depends on, on its slice."""
    flow = near.flow
    placed = dict(actions)
    for node in flow.calls():
        if node.number not in placed and node.op.gathered and near.before[node.number]:
            calls = list(near.before[node.number].values())
            here = program.slice_of(node.mesh)
            if all(c in placed for c in calls) and len({placed[c].microbatch for c in calls}) == 1:
                same = [c for c in calls if program.slice_of(flow.nodes[c].mesh) == here]
                if same:
                    actions[node.number] = placed[max(same)]
    _attach_to_users(program, near, actions)


def _attach_to_users(program: ProgramIR, near: _Near, actions: dict[int, Action]) -> None:
    """Gives gathered calls that depend on no placed call the action of their users, if that is one microbatch."""
    flow = near.flow
    wanted: dict[int, list[int]] = {}
    for node in reversed(flow.nodes):
        if not near.placed[node.number] and not near.before[node.number] and node.number in wanted:
            users = _known(wanted[node.number], actions)
            if node.callee and users and len({a.microbatch for a in users.values()}) == 1:
                here = program.slice_of(node.mesh)
                same = [n for n in users if program.slice_of(flow.nodes[n].mesh) == here]
                if same:
                    actions[node.number] = users[min(same)]
            passed = wanted[node.number] if not node.callee else [node.number]
        else:
            passed = [node.number]
        for maker in flow.waits[node.number]:
            wanted.setdefault(maker, []).extend(passed)


def _known(nodes: Sequence[int], actions: dict[int, Action]) -> dict[int, Action]:
    """Returns the actions of these nodes; none if one of them has none."""
    return {n: actions[n] for n in nodes} if all(n in actions for n in nodes) else {}
