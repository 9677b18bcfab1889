# pyright: basic
"""Compares a JAX program on devices of a proxy with the same program on local CPU devices.

    python bench/proxy.py
    python bench/proxy.py --embedded          # the devices are those of the process of the proxy
    python bench/proxy.py --hosts 2 --devices 2

The same program runs twice as a process of its own: with `jax.jit` on its own devices, and as a client of a proxy. A
chain is 2,000 dependent calls of a small function. The server's CPU time is that of the proxy's process per call of the
chain; hosts are other processes, unless the proxy is embedded.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time

CALLS, READS, MIB, COPIES = 2000, 200, 64, 5


def client():
    """Runs the program; prints one line of JSON for each figure, and marks the chain for the proxy's process."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    f, x = jax.jit(lambda v: v + 1), jnp.ones(8)
    f(x).block_until_ready()
    f(x).block_until_ready()

    def show(**figures):
        print(json.dumps(figures), flush=True)

    show(chain="begins")
    start, y = time.perf_counter(), x
    for _ in range(CALLS):
        y = f(y)
    enqueued = time.perf_counter() - start
    y.block_until_ready()
    total = time.perf_counter() - start
    show(chain="ends")
    start = time.perf_counter()
    for _ in range(READS):
        f(x).block_until_ready()
    synchronous = time.perf_counter() - start
    host = np.ones(MIB << 18, np.float32)
    put, get = [], []
    for _ in range(COPIES):
        start = time.perf_counter()
        array = jax.device_put(host)
        array.block_until_ready()
        put.append(time.perf_counter() - start)
        array = (array + 1).block_until_ready()
        start = time.perf_counter()
        np.asarray(array)
        get.append(time.perf_counter() - start)
    show(
        enqueue=1e6 * enqueued / CALLS,
        chained=1e6 * total / CALLS,
        synchronous=1e6 * synchronous / READS,
        put=MIB / min(put),
        get=MIB / min(get),
    )


def run(environment):
    """Runs the client; returns its figures, with the CPU time of this process per call of the chain."""
    words = [sys.executable, __file__, "--client"]
    with subprocess.Popen(words, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True) as process:
        figures, began = {}, 0.0
        for line in process.stdout or ():
            said = json.loads(line)
            if said.get("chain") == "begins":
                began = time.process_time()
            elif said.get("chain") == "ends":
                figures["server"] = 1e6 * (time.process_time() - began) / CALLS
            else:
                figures |= said
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--embedded", action="store_true")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--devices", type=int, default=1)
    options = parser.parse_args()
    if options.client:
        client()
        return
    import pathways as pw

    with contextlib.ExitStack() as stack:
        if not options.embedded:
            stack.enter_context(pw.cluster(f"islands=1,hosts={options.hosts},devices={options.devices}"))
        served = stack.enter_context(pw.proxy())
        found = {"local": run({"JAX_PLATFORMS": "cpu"}), "proxy": run(served.environment)}
    where = "in this process" if options.embedded else f"on {options.hosts} hosts"
    print(f"{served.devices} devices {where}; small calls in us, copies of {MIB} MiB in MiB/s")
    for name, unit in (("chained", "us"), ("enqueue", "us"), ("synchronous", "us"), ("put", "MiB/s"), ("get", "MiB/s")):
        local, proxied = found["local"][name], found["proxy"][name]
        print(f"  {name:12} local {local:9.1f}  proxy {proxied:9.1f} {unit:6} proxy / local {proxied / local:7.2f}")
    print(f"  server's CPU per call {found['proxy']['server']:9.1f} us")


if __name__ == "__main__":
    main()
