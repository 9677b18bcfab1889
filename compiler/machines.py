"""The cost model: estimates how long computations and transfers take on given machines. Placement, search, timed
devices and the simulator all call it. It assumes figures that a topology does not state, and lists them.

* A computation takes its flops at the rate of its devices, or the bytes that it reads and writes at the rate of their
  memory, whichever takes longer (a roofline). Each call adds an overhead.
* A transfer between islands takes its bytes at the rate of the network, and then the latency.
* A transfer inside an island takes its bytes over the links of all devices that it reaches, and then the latency.
* A collective inside a computation takes the bytes that each device sends at the rate of its links, and the latency of
  each message. It does not overlap with the computation.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pathways.dialect.topology import Island, Topology

ASSUMED_FLOPS = 1e12
"""Flop/s of a device if the topology states none."""
ASSUMED_EFFICIENCY = 0.5
"""Fraction of the flop/s that computations reach."""
ASSUMED_CALL_US = 20.0
ASSUMED_MEMORY_GBPS = 800.0


@dataclass(frozen=True)
class Machines:
    """A topology, and assumptions for figures that it does not state.

    `efficiency`, `call_seconds` and `memory_gbps` replace the figures of every island; None keeps the island's, or the
    assumption. `states` is the bytes of parameters, gradients and optimizer state for each byte of parameters.
    """

    topology: Topology
    efficiency: float | None = None
    call_seconds: float | None = None
    states: float = 4.0
    memory_gbps: float | None = None

    def rate(self, island: Island) -> float:
        """Returns the flop/s that computations reach on a device."""
        stated = island.efficiency if self.efficiency is None else self.efficiency
        return (island.flops or ASSUMED_FLOPS) * (ASSUMED_EFFICIENCY if stated is None else stated)

    def call(self, island: Island) -> float:
        """Returns the seconds of overhead of a computation on a device."""
        if self.call_seconds is not None:
            return self.call_seconds
        return (ASSUMED_CALL_US if island.call_us is None else island.call_us) * 1e-6

    def memory(self, island: Island) -> float:
        """Returns the bytes a second that a device reads or writes in its memory."""
        stated = island.memory_gbps if self.memory_gbps is None else self.memory_gbps
        return (ASSUMED_MEMORY_GBPS if stated is None else stated) * 1e9

    def computing(self, island: Island, flops: float, touched: float = 0.0) -> float:
        """Returns the seconds of a computation with these flops and bytes on each device, without the call."""
        return max(flops / self.rate(island), touched / self.memory(island))

    def between(self, size: float) -> float:
        """Returns the seconds in which bytes occupy the network between islands, without the latency."""
        return size / (self.topology.dcn_gbps * 1e9)

    @staticmethod
    def inside(island: Island, size: float, devices: int) -> float:
        """Returns the seconds in which bytes occupy the links of the devices that they reach, without the latency."""
        return size / (island.ici_gbps * 1e9 * devices)

    @staticmethod
    def exchanging(island: Island, size: float, hops: float) -> float:
        """Returns the seconds of collectives in which each device sends `size` bytes, in messages one after another."""
        return size / (island.ici_gbps * 1e9) + hops * (island.ici_us or 0.0) * 1e-6

    def figures(self) -> tuple[str, str, str]:
        """Formats the efficiency, the overhead of a call and the rate of memory, or the range of each over islands."""
        islands = self.topology.islands
        rates = {self.rate(i) / (i.flops or ASSUMED_FLOPS) for i in islands}
        calls, memories = {self.call(i) for i in islands}, {self.memory(i) for i in islands}
        return (
            _range([f"{share:.0%}" for share in sorted(rates)], " of the flop/s"),
            _range([f"{seconds * 1e6:g}" for seconds in sorted(calls)], " us a call"),
            _range([f"{rate / 1e9:g}" for rate in sorted(memories)], " GB/s of a device's memory"),
        )

    def assumed_rates(self, used: Collection[str] | None = None) -> list[str]:
        """Lists the assumptions about flop/s, as text. `used` are the names of the islands in use; None: all."""
        islands = self._used(used)
        found: list[str] = []
        if any(i.flops is None for i in islands):
            found.append(f"{ASSUMED_FLOPS:.0e} flop/s a device")
        if self.efficiency is None and any(i.efficiency is None for i in islands):
            found.append(f"{ASSUMED_EFFICIENCY:.0%} of the flop/s")
        return found

    def assumptions(self, used: Collection[str] | None = None) -> list[str]:
        """Lists the figures of islands in use that are assumed, because the topology does not state them, as text."""
        islands, found = self._used(used), self.assumed_rates(used)
        if self.call_seconds is None and any(i.call_us is None for i in islands):
            found.append(f"{ASSUMED_CALL_US:g} us a call")
        if self.memory_gbps is None and any(i.memory_gbps is None for i in islands):
            found.append(f"{ASSUMED_MEMORY_GBPS:g} GB/s of a device's memory")
        return found

    def _used(self, names: Collection[str] | None) -> list[Island]:
        return [island for island in self.topology.islands if names is None or island.name in names]


def _range(texts: Sequence[str], unit: str) -> str:
    return (texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}") + unit
