"""Estimates what a host that is lost during training costs: the steps since the last snapshot are done again."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LostHost:
    """A host that is lost after `step` steps, with a snapshot after every `snapshot_every` steps.

    `restart_seconds` pass until the next step begins: detection, new hosts, reading the snapshot.
    """

    step: int
    snapshot_every: int
    restart_seconds: float

    @property
    def repeated(self) -> int:
        """The number of steps that are done again."""
        return self.step % self.snapshot_every

    def seconds(self, step_seconds: float) -> float:
        """Returns the time that training takes longer, with steps of this time."""
        return self.restart_seconds + self.repeated * step_seconds

    def text(self, step_seconds: float) -> str:
        return (
            f"a host lost after step {self.step:,}: {self.repeated:,} steps since the snapshot after step "
            f"{self.step - self.repeated:,} are done again; training takes {self.seconds(step_seconds):,.1f} s longer"
        )
