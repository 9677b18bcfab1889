"""Defines the base class of compiler passes. A pass is a frozen dataclass whose fields are its options. The pass
manager runs passes, and users derive their own from this class.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from pathways.compiler.computations.temporaries import Analyzer
from pathways.compiler.placement.binding import Binding
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.phases import Phase
from pathways.dialect.topology import Topology

PhaseName: TypeAlias = Phase | Literal["trace", "shard", "place", "transfer", "schedule", "plan"]
"""A phase, or its name in docs and dumps."""


@dataclass
class Session:
    """Inputs of a pass other than the module: the topology, and bindings that already hold in this process."""

    topology: Topology | None = None
    bindings: dict[str, Binding] = field(default_factory=dict[str, Binding])
    analyzer: Analyzer | None = None
    """Measures the memory that executables need. Without an analyzer it is estimated."""


@dataclass(frozen=True)
class Pass:
    """Base of all passes. The docstring of a pass states what it requires and what it ensures."""

    name: ClassVar[str]
    requires: ClassVar[PhaseName]
    """The phase that the module must have reached."""
    ensures: ClassVar[PhaseName]
    """The phase that the module has reached after the pass; the rules of this phase are verified."""

    keeps_flow: ClassVar[bool] = False
    """Whether `program.flow` is correct after the pass. Otherwise the pass manager calls `program.changed()`."""

    writes: ClassVar[frozenset[str] | None] = None
    """The attributes of calls and transfers that the pass writes, `arguments` if it writes those of arguments, and
    `computations` if it changes the code of any.

    In a program without bodies it adds, removes and reconnects no calls or transfers. In phase `plan` it leaves the
    instruction streams unchanged. So only two kinds of rules are verified after it: those that read these attributes,
    and those of the phase that it ensures. None: it may change anything, and all rules are verified. When a plan is
    made, all rules are verified, unless they were after the pass before it.
    """

    spelled: ClassVar[str] = ""
    """The name of a user's pass in the text of a pipeline, `FILE.py:NAME`. Empty: `name` is used."""

    @classmethod
    def phases(cls) -> tuple[Phase, Phase]:
        """Returns the required and the ensured phase. Raises ValueError or AttributeError if one is not stated."""
        return Phase(cls.requires), Phase(cls.ensures)

    def apply(self, program: ProgramIR, session: Session) -> None:
        """Changes the program. It need not set `program.phase`, which becomes the ensured phase."""
        raise NotImplementedError
