"""Names the compilation phases of a program, in order: from `trace`, the output of a front end, to `plan`. Dump file
names and the module attribute `pw.phase` contain these names.
"""

from enum import StrEnum


class Phase(StrEnum):
    TRACE = "trace"
    SHARD = "shard"
    PLACE = "place"
    TRANSFER = "transfer"
    SCHEDULE = "schedule"
    PLAN = "plan"

    @property
    def position(self) -> int:
        return list(Phase).index(self)

    def reached(self, other: "Phase") -> bool:
        """Returns whether IR of this phase has all properties that `other` guarantees."""
        return self.position >= other.position

    @property
    def dump_name(self) -> str:
        return f"{self.position + 1:02}.{self}.mlir"
