# pyright: basic
"""Compares a plan with a Python loop: a chain of 128 small computations on 4 CPU devices, with and without all-reduce.

    python bench/chain.py

The plan is compiled twice: with its calls merged into one executable, and with separate calls. The loop calls the same
jitted function on the same devices, in the same run, with as many executions in flight as the runtime allows. Two more
ways show the limits. `one jit`, JAX's own compilation of the whole chain, is the limit of merging. `bare PJRT`, the
same executions as `plan, apart` with nothing around them, is the limit of a runtime. All ways run in rotation, and
ratios are of medians. Above 1 the plan is faster.
"""

import argparse
import collections
import functools

import jax
import numpy as np
from in_turns import medians
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.api.process import process
from pathways.dialect.dtypes import ArrayType
from pathways.runtime.host.devices import pjrt

LENGTH, DEVICES, MAX_EXECUTIONS_IN_FLIGHT = 128, 4, 16


def work(x):
    """One add and one all-reduce a device."""
    return x + 1e-3 * lax.pmean(x, "x")


def local_work(x):
    """Nothing that devices do together."""
    return 1.001 * x + 1e-3


def make_step(mesh, function):
    sharding = NamedSharding(mesh, P("x"))
    body = jax.shard_map(function, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
    return jax.jit(body, in_shardings=sharding, out_shardings=sharding), sharding


def make_plan(function):
    step, _ = make_step(pw.make_virtual_device_set().add_slice(devices=DEVICES).mesh("x"), function)

    @pw.program
    def chain(x):
        for _ in range(LENGTH):
            x = step(x)
        return x

    return chain


def native_loop(step, x):
    """Runs a Python loop with at most MAX_EXECUTIONS_IN_FLIGHT: with over 32, jax 0.10 hangs."""
    flying = collections.deque()
    for _ in range(LENGTH):
        x = step(x)
        flying.append(x)
        if len(flying) > MAX_EXECUTIONS_IN_FLIGHT:
            flying.popleft().block_until_ready()
    return x.block_until_ready()


def bare_pjrt(plan, devices, sharding, x):
    """Returns a function that runs an unmerged plan: a gang with all-reduces, or else each device separately."""
    (computation,) = plan.computations
    if computation.local:
        parts = [
            (computation.local, [d], pjrt.on_device(d), v) for d, v in zip(devices, pjrt.shards_of(x), strict=True)
        ]
    else:
        parts = [(computation.module, devices, sharding, x)]
    starts = []
    for module, where, lies, part in parts:
        handlers = pjrt.result_handlers([ArrayType(part.shape, "float32")], [lies])
        starts.append((pjrt.compile_module(module, where).execute_sharded, handlers))

    def chain():
        values, flying = [v for *_, v in parts], collections.deque()
        for number in range(LENGTH):
            results = [e([v], launch_id=number, with_tokens=True) for (e, _), v in zip(starts, values, strict=True)]
            flying.append([r.consume_token() for r in results])
            values = [r.consume_with_handlers(h)[0] for r, (_, h) in zip(results, starts, strict=True)]
            if len(flying) > MAX_EXECUTIONS_IN_FLIGHT:
                for token in flying.popleft():
                    token.block_until_ready()
        for value in values:
            value.block_until_ready()
        return values

    return chain


def measure(function, rounds):
    """Returns seconds per computation, keyed by implementation."""
    lowered = make_plan(function).lower(np.ones(8 * DEVICES, np.float32))
    merged, apart = lowered.compile(), lowered.compile(merge=False)
    host = np.ones(8 * DEVICES, np.float32)
    x = merged(host)
    expected = np.asarray(x)
    assert np.allclose(np.asarray(apart(host)), expected)
    island = process().machine.islands[-1]
    step, sharding = make_step(Mesh(np.array(island.devices), ("x",)), function)
    y = jax.device_put(host, sharding)
    assert np.allclose(np.asarray(native_loop(step, y)), expected)
    whole = jax.jit(lambda x: functools.reduce(lambda v, _: step(v), range(LENGTH), x))
    bare = bare_pjrt(apart.plan, island.devices, sharding, y)
    assert np.allclose(np.concatenate([np.asarray(v) for v in bare()]), expected)
    ways = {
        "plan, merged": lambda: merged(x).block_until_ready(),
        "plan, apart": lambda: apart(x).block_until_ready(),
        "bare PJRT": bare,
        "one jit": lambda: whole(y).block_until_ready(),
        "native loop": lambda: native_loop(step, y),
    }
    return {name: median / LENGTH for name, median in medians(ways, rounds).items()}


def compare(function, rounds):
    found = measure(function, rounds)
    print(function.__doc__.splitlines()[0])
    for name, median in found.items():
        ratio = found["native loop"] / median
        print(f"  {name:14}{1e6 * median:8.1f} us a computation, native loop / this {ratio:7.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    kind = jax.devices()[0].device_kind
    print(f"jax {jax.__version__}, {DEVICES} x {kind}, chain of {LENGTH}, float32[{8 * DEVICES}]")
    for function in (work, local_work):
        compare(function, rounds)


if __name__ == "__main__":
    main()
