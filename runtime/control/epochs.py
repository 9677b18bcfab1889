"""Which host of an island is there, of those that were started one after another."""

from dataclasses import dataclass

from pathways.runtime.states import ISLAND


@dataclass(eq=False)
class Epoch:
    """Which host of an island this is, and whether it is there (runtime/states.py)."""

    number: int = 0
    state: str = ISLAND.first

    def go(self) -> None:
        """The host is gone: the next one is that of another epoch."""
        self.state = ISLAND.after(self.state, "go")
        self.number += 1

    def settle(self, number: int, event: str) -> None:
        """Says what has become of the host of an epoch; that one may be gone again by then."""
        if number == self.number:
            self.state = ISLAND.after(self.state, event)
