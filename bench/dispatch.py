# pyright: basic
"""Compares parallel with sequential dispatch (paper, Figure 7): a chain over hosts that are slow to reach.

    python bench/dispatch.py --latency 0,0.2,1

Each stage of the chain is one small computation on another host: a process with one device. Every message between the
controller and a host is delayed by the given milliseconds, in each direction. Messages between hosts are not delayed.
The delay costs no CPU time: timers of the loops hold messages back. `round trip` is the latency measured without other
load.

`parallel` is one plan of all stages: all hosts are notified of the run at once, and values go from host to host. It is
compared with three clients. They dispatch a stage when the previous host reports that its result is there (Figure 4a).
The paper waits only until it is enqueued, which for computations as small as these is the same.

- `host to host`: one plan a stage, which fetches its operand from the previous host itself; the fairest of the three
- `programs`: one program a stage, as a user would write them: a separate run moves the operands
- `no data`: as host to host, but each stage has its operand already: nothing moves, unlike in `parallel`

All ways run in rotation in one run, on one cluster for each latency. Ratios are of medians; above 1 `parallel` is
faster. `arithmetic` is the expected ratio: the medians without latency, plus the round trips that each way waits for.
"""

import argparse
import itertools

import jax
import numpy as np
from in_turns import medians
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.api.process import process
from pathways.runtime.client.remote.cluster import Cluster
from pathways.runtime.control import cluster_controller
from pathways.runtime.wire import connection
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.peer import Peer

WIDTH = 16
WAYS = ("host to host", "programs", "no data")


def far_peer(seconds):
    """Returns a class of streams that delay messages by `seconds` in both directions, and keep their order."""

    class FarPeer(Peer):
        @property
        def receive(self):
            heard, loop = self._decided, self._loop
            return lambda *said: loop.after(seconds, lambda: heard(*said))

        @receive.setter
        def receive(self, heard):
            self._decided = heard

        def _queue(self, pieces):
            def late():
                Peer._queue(self, pieces)
                self.flush()

            self._loop.after(seconds, late)

    return FarPeer


def round_trip(hosts, rounds):
    """Returns the seconds from a request to its answer."""
    host = hosts["island0"]
    return medians({"": lambda: host.ask(lambda number: m.Inject(number, 0, ""))}, rounds)[""]


class Chain:
    """The ways to run a chain over the first hosts of a cluster."""

    def __init__(self, hosts):
        devices = pw.make_virtual_device_set()
        places = [
            NamedSharding(devices.add_slice(devices=1, island=f"island{i}").mesh("x"), P()) for i in range(max(hosts))
        ]
        stages = [jax.jit(lambda x: 0.5 * x + 1.0, in_shardings=p, out_shardings=p) for p in places]
        host = np.arange(WIDTH, dtype=np.float32)
        programs = [pw.program(lambda x, s=s: s(x)) for s in stages]
        self.single = [p.lower(host).compile() for p in programs]
        there = [pw.program(lambda x, p=p: jax.jit(lambda y: y, in_shardings=p)(x))(host) for p in places]
        self.there = there
        self.fetching = [self.single[0]]
        for value, former, stage in zip(there, places, stages[1:], strict=False):
            fetch = pw.program(lambda x, f=former, s=stage: s(jax.device_put(x, f)))
            self.fetching.append(fetch.lower(value).compile())
        self.whole = {}
        for count in hosts:

            @pw.program
            def chain(x, count=count):
                for stage in stages[:count]:
                    x = stage(x)
                return x

            self.whole[count] = chain.lower(there[0]).compile()

    def parallel(self, count):
        return self.whole[count](self.there[0]).block_until_ready()

    def one_by_one(self, plans, count):
        x = self.there[0]
        for plan in plans[:count]:
            x = plan(x).block_until_ready()
        return x

    def no_data(self, count):
        for plan, x in zip(self.single[:count], self.there, strict=False):
            plan(x).block_until_ready()

    def ways(self, count):
        functions = (
            lambda: self.one_by_one(self.fetching, count),
            lambda: self.one_by_one(self.single, count),
            lambda: self.no_data(count),
        )
        return {"parallel": lambda: self.parallel(count)} | dict(zip(WAYS, functions, strict=True))

    def check(self, count):
        ways = self.ways(count)
        assert len(self.whole[count].plan.streams) == count
        assert all(len(plan.plan.streams) == 2 for plan in self.fetching[1:])
        want = np.arange(WIDTH, dtype=np.float32)
        for _ in range(count):
            want = 0.5 * want + 1.0
        for name in ("parallel", *WAYS[:2]):
            assert np.array_equal(np.asarray(ways[name]()), want), name


def trips(way, count):
    """Returns the number of round trips to a host that a way waits for."""
    return 1 if way == "parallel" else count


def measure(latency, hosts, rounds):
    """Returns the medians of all ways, by number of hosts, and that of a round trip."""
    connection.Peer = cluster_controller.Peer = far_peer(latency / 1e3) if latency else Peer
    with pw.cluster(islands=max(hosts), devices=1):
        machine = process().machine
        assert isinstance(machine, Cluster)
        chain, found = Chain(hosts), {}
        for count in hosts:
            chain.check(count)
            found[count] = medians(chain.ways(count), rounds)
        return found, round_trip(machine.hosts, 10 * rounds)


def numbers(of):
    return lambda text: [of(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=numbers(float), default=[0.0, 0.2, 1.0], help="one way, in milliseconds")
    parser.add_argument("--hosts", type=numbers(int), default=[2, 4, 8], help="how many, by commas")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    hosts = options.hosts
    print(f"jax {jax.__version__}, a host of one CPU device a stage, float32[{WIDTH}], medians of {2 * options.rounds}")
    bare, trip = measure(0.0, hosts, options.rounds)
    for latency in options.latency:
        found, longer = (bare, trip) if latency == 0 else measure(latency, hosts, options.rounds)
        print(f"\n{latency:g} ms one way (a round trip takes {1e3 * longer:.2f} ms, with no latency {1e3 * trip:.2f})")
        print(f"  {'hosts':>5}  {'parallel':>10}" + "".join(f"  {way:>13}  ratio  arithmetic" for way in WAYS))
        for count, way in itertools.product(hosts, ("parallel", *WAYS)):
            took = found[count]
            if way == "parallel":
                print(f"  {count:5}  {1e3 * took[way]:7.2f} ms", end="")
                continue
            expected = {w: bare[count][w] + (longer - trip) * trips(w, count) for w in (way, "parallel")}
            hoped = f"{expected[way] / expected['parallel']:.2f}" if latency else "-"
            end = "\n" if way == WAYS[-1] else ""
            print(f"  {1e3 * took[way]:10.2f} ms  {took[way] / took['parallel']:5.2f}  {hoped:>10}", end=end)


if __name__ == "__main__":
    main()
