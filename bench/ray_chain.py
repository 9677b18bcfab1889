# pyright: basic
"""Compares chains of small computations on islands that Ray has started with plain Ray, to find the overhead.

    python bench/ray_chain.py

Islands have four devices; each computation has an all-reduce. Ours is a cluster of `pwc cluster start --ray local`,
with controller, hosts and this client in separate processes. It runs one program whose computations the compiler merges
or keeps separate (as in chain.py), and one program that alternates between two islands. It also runs a call of a
program for each computation, all made at once, which is no way to write a chain. Plain Ray is an actor for each island
with the same jitted computation. Its calls take the references that earlier calls gave, and all are made at once. Its
arrays are JAX's, as the computation gives them, or NumPy's, which are cheaper there.

Next to them are the limits of the machine without this project (`hop_by_hand.py`). These are the computation alone in
one process; the computation started by one message each through a relay process, with one message back; and hops of two
processes by JAX's transfer server. No chain that is not merged is much faster than those.

All ways run in rotation in one run; ratios are of medians. Bars: merged 10, apart 5, alternating 3.
"""

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
from hop import ByHand, Helper
from hop_by_hand import computation
from in_turns import medians
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.api.shared_cluster import start_on_ray
from pathways.dialect.topology import parse_topology
from pathways.runtime.launch.ray_cluster import RayRequest, await_end_of_ray, ray_of
from pathways.runtime.launch.reach import ask

DEVICES = 4
TOPOLOGY = f"islands=2,devices={DEVICES}"
KINDS = ("JAX", "NumPy")
BARE, RELAYED, BY_HAND = "bare computation", "bare, by messages", "hops by hand"
LIMITS = {"apart": (BARE,), "alternating": (BY_HAND,), "a call each": (BARE, RELAYED)}
"""The limits of this machine without this project, by the chains that they are compared with."""
BARS = {"merged": 10, "apart": 5, "alternating": 3}


@contextlib.contextmanager
def cluster_by_ray():
    """Starts a cluster of ours on its own Ray; yields the address of the cluster."""
    with tempfile.TemporaryDirectory(prefix="pw") as folder:
        address = f"{folder}/c"
        start_on_ray(address, RayRequest("local:2"), parse_topology(TOPOLOGY), "stride")
        said = ray_of(Path(address))
        try:
            yield address
        finally:
            ask(address, "stop")
            await_end_of_ray(said)


def make_ways(length):
    """Returns the ways, each a function of no arguments that gives the first number of the result."""
    made = pw.make_virtual_device_set()
    steps = []
    for island in range(2):
        mesh = made.add_slice(devices=DEVICES, island=f"island{island}").mesh("x")
        place = NamedSharding(mesh, P("x"))
        steps.append(jax.jit(computation(mesh, DEVICES), in_shardings=place, out_shardings=place))

    def chain(islands):
        @pw.program
        def run(x):
            for hop in range(length):
                x = steps[hop % islands](x)
            return x

        return run.lower(start)

    one = pw.program(lambda x: steps[0](x))
    start = pw.program(lambda x: x)(np.ones(8 * DEVICES, np.float32))
    merged, apart, alternating = chain(1).compile(), chain(1).compile(merge=False), chain(2).compile()

    def call_each():
        x = start
        for _ in range(length):
            x = one(x)
        return x

    ways = {
        "merged": lambda: merged(start),
        "apart": lambda: apart(start),
        "alternating": lambda: alternating(start),
        "a call each": call_each,
    }
    return {name: lambda way=way: float(np.asarray(way())[0]) for name, way in ways.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--length", type=int, default=128, help="computations")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        stack.enter_context(pw.connect(stack.enter_context(cluster_by_ray())))
        ray = stack.enter_context(contextlib.closing(Helper(sys.executable, "ray", DEVICES)))
        print(f"jax {jax.__version__}, ray {ray.said}, chains of {options.length}")

        def by_ray(islands, as_numpy):
            ray.tell(options.length, 0, islands, as_numpy)
            return float(ray.hear())

        ours = make_ways(options.length)
        theirs = {
            name_of(islands, kind): lambda n=islands, kind=kind: by_ray(n, int(kind == "NumPy"))
            for islands in (1, 2)
            for kind in KINDS
        }
        helpers = {role: Helper(sys.executable, role, DEVICES) for role in ("bare", "relay")}
        hand = stack.enter_context(contextlib.closing(ByHand(DEVICES, options.length)))
        for helper in helpers.values():
            stack.enter_context(contextlib.closing(helper))

        def by_helper(role):
            helpers[role].tell(options.length)
            return float(helpers[role].hear())

        ways = ours | theirs | {BARE: lambda: by_helper("bare"), BY_HAND: lambda: hand.run(True)}
        found = [way() for way in ways.values()]
        assert np.allclose(found, found[0]), found
        times = medians(ways | {RELAYED: lambda: by_helper("relay")}, options.rounds)
    for name, seconds in times.items():
        print(f"  {name:20}{1e6 * seconds / options.length:9.1f} us a computation")
    for name in ours:
        bar = f"   (bar: {BARS[name]})" if name in BARS else ""
        islands = 2 if name == "alternating" else 1
        ratios = [times[name_of(islands, kind)] / times[name] for kind in KINDS]
        said = ", ".join(f"{ratio:5.1f} with {kind}'s arrays" for ratio, kind in zip(ratios, KINDS, strict=True))
        print(f"  plain Ray / {name:12}{said}{bar}")
        for limit in LIMITS.get(name, ()):
            most = [times[name_of(islands, kind)] / times[limit] for kind in KINDS]
            print(f"    {limit:22}{most[0]:5.1f}{'':19}{most[1]:5.1f}")


def name_of(islands, kind):
    """Returns the name of a chain by plain Ray, on one island or two."""
    return f"Ray, {islands} island{'s' * (islands > 1)}, {kind}"


if __name__ == "__main__":
    main()
