# pyright: basic
"""Measures small calls, loops, chains, hops, models, imports against limits and peers; writes docs/performance.md.

    python bench/speed.py

Each script of `ROWS` runs in a process of its own. All take about 5 minutes on 2 cores.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import jax

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs/performance.md"
ROWS = {
    "small_calls": "{n: {'ours': o, 'jax.jit': j} for n, (o, j) in small_calls.measure(40).items()}",
    "loops": "{'a turn of a loop that reads its condition': {'ours': (f := loops.measure(10))['plan'],"
    " 'by hand': f['by hand']}, 'a turn, and its limit': {'ours': f['plan'], 'bare PJRT': f['bare PJRT']}}",
    "chain": "{**{f'a computation of a chain, {w}': {'ours': (f := chain.measure(g, 10))['plan, merged'],"
    " 'one jit': f['one jit']} for w, g in (('all-reduce', chain.work), ('no all-reduce', chain.local_work))},"
    " 'the same, not merged': {'ours': f['plan, apart'], 'bare PJRT': f['bare PJRT']}}",
    "hop": "{f'a computation on another process than the one before, {n}': {'ours': (f := hop.measure(d, o))[hop.OURS],"
    " 'by hand, in lockstep': f['by hand, lockstep']} for d, n in ((1, '1 device'), (4, '4 devices'))}",
    "small_models": "small_models.measure(3)",
}
"""For each script, an expression for its rows: the seconds of two ways by what is measured."""
OPTIONS = "import argparse; o = argparse.Namespace(length=64, rounds=10, ray_python=None)"
_TEXT = """# Speed of small calls, transfers and models

Each row compares one small piece of work with a limit or a peer, in rotation. Only the ratios mean something on another
machine. `by hand` is a Python loop over `jax.jit` and `jax.device_put`; between processes, it
is JAX's transfer library. `bare PJRT` makes the same launches with nothing around them. `make bench-speed` measures all
rows again, and writes this page. The paper's experiments are on [another page](evaluation.md).

A call of a program of one computation launches at once, if no other client uses its islands: its client owns them, and
no scheduler is asked. It does not enter the queue, and it makes no object that describes a run. It becomes a run like
all others if its results are not ready when the launch returns. `jax.jit` does less: it has no clients, no futures of
failed arrays, and no report of a hang. jit's dispatch in C++ could launch the same code; it would know no launch ids,
by which hangs are found, and its interface is private.

The models run in four stages on one machine. `accumulated jit` is plain `jax.jit` of the same microbatches, one after
another. A first call with code in JAX's cache folder is compared with jit's first call without a cache. Three rows of
each model compare with a limit. `XLA alone` only compiles the modules of the plan, on all cores. XLA compiles equal
kernels of one module once, but stages are separate modules, and it shares nothing between them. `jit with its cache`
traces and lowers one function. A pipeline also traces the loss to see how it mixes examples, and takes the plan of an
equal program from the cache. `bare PJRT` makes the launches and copies of a step.

jax {version}, {kind}, {cores} cores.

| work | ours | peer or limit | its time | ours / its |
|---|---|---|---|---|
{rows}
"""


def rows_of(script):
    code = f"import sys, json; sys.path.insert(0, {str(HERE)!r}); import {script}; {OPTIONS}\n"
    code += f"print(json.dumps({ROWS[script]}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def seconds_of(*command):
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def imports():
    """Returns the seconds of imports and of the command line, each against `import jax`."""
    plain = seconds_of(sys.executable, "-c", "import jax")
    ours = {
        "the first attribute of `pathways`": (sys.executable, "-c", "import pathways; pathways.program"),
        "`pwc --help`": (sys.executable, "-m", "pathways.cli.main", "--help"),
    }
    return {name: {"ours": seconds_of(*command), "import jax": plain} for name, command in ours.items()}


def line(name, ways):
    (_, ours), (peer, its) = ways.items()
    unit, scale = ("ms", 1e3) if its > 1e-3 else ("us", 1e6)
    shown = [f"{scale * t:,.0f} {unit}" if scale * t >= 100 else f"{scale * t:.3g} {unit}" for t in (ours, its)]
    return f"| {name} | {shown[0]} | {peer} | {shown[1]} | {ours / its:.2f} |"


def main():
    found = {}
    for script in ROWS:
        print(f"== {script}", flush=True)
        found |= rows_of(script)
    found |= imports()
    rows = "\n".join(line(name, ways) for name, ways in found.items())
    cores = len(os.sched_getaffinity(0))
    PAGE.write_text(_TEXT.format(version=jax.__version__, kind=jax.devices()[0].device_kind, cores=cores, rows=rows))
    print(rows)


if __name__ == "__main__":
    main()
