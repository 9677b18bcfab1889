"""What a pass is: a frozen dataclass whose fields are its options, around a plain function."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from pathways.compiler.computations.temporaries import Analyzer
from pathways.compiler.placement.binding import Binding
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.phases import Phase
from pathways.dialect.topology import Topology

PhaseName: TypeAlias = Phase | Literal["trace", "shard", "place", "transfer", "schedule", "plan"]
"""A phase, or how docs and dumps write it."""


@dataclass
class Session:
    """What passes may know beside the module: the machines, and bindings that already hold in this process."""

    topology: Topology | None = None
    bindings: dict[str, Binding] = field(default_factory=dict[str, Binding])
    analyzer: Analyzer | None = None
    """Who knows what executables need; without one that is estimated."""


@dataclass(frozen=True)
class Pass:
    """Base of all passes. The docstring of a pass says what it requires and what it ensures."""

    name: ClassVar[str]
    requires: ClassVar[PhaseName]
    """The phase that the module must have reached."""
    ensures: ClassVar[PhaseName]
    """The phase that the module has reached afterwards; its rules are verified."""

    keeps_flow: ClassVar[bool] = False
    """Whether `Program.flow` is true behind it: it leaves the dataflow alone, or says itself what it has changed."""

    writes: ClassVar[frozenset[str] | None] = None
    """The attributes that it writes to calls and transfers, and `arguments` where it describes these.

    It makes, drops and reconnects none of them in a program without bodies, and in phase `plan` leaves the instruction
    streams alone, so that only rules that read what it writes, and those of the phase that it ensures, are verified
    behind it. None: it may do anything. All rules are verified where a plan is made.
    """

    spelled: ClassVar[str] = ""
    """How the text of a pipeline names a pass of the user's own, `FILE.py:NAME`; empty: by its name."""

    @classmethod
    def phases(cls) -> tuple[Phase, Phase]:
        """What it requires and ensures. Raises ValueError or AttributeError where a class states no such phase."""
        return Phase(cls.requires), Phase(cls.ensures)

    def apply(self, program: ProgramIR, session: Session) -> None:
        """Changes the program. `program.phase` need not be set: it is what the pass ensures."""
        raise NotImplementedError
