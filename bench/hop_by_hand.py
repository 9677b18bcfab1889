# pyright: basic
"""Runs the baselines of `bench/hop.py` without this project, each in a process that reads commands line by line.

python bench/hop_by_hand.py peer DEVICES     # one of two that pull from each other (jax.experimental.transfer)
python bench/hop_by_hand.py ray DEVICES      # the driver of two Ray actors; may be another Python than JAX's here
python bench/hop_by_hand.py bare DEVICES     # the jitted computation alone, in one process
python bench/hop_by_hand.py relay DEVICES    # the same, started by messages that another process passes on
"""

import collections
import importlib
import os
import select
import socket
import sys
import tempfile

MAX_EXECUTIONS_IN_FLIGHT = 16
"""With over 32 executions of a collective in flight, jax 0.10 hangs."""


def make_step(devices):
    """Returns the computation, and the sharding of its operand and result. Gives JAX `devices` CPU devices."""
    import jax
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    jax.config.update("jax_num_cpu_devices", devices)
    mesh = Mesh(jax.devices()[:devices], ("x",))
    return jax.jit(computation(mesh, devices)), NamedSharding(mesh, P("x"))


def computation(mesh, devices):
    """Returns a multiply and an add; with several devices, an add and an all-reduce."""
    import jax
    from jax import lax
    from jax.sharding import PartitionSpec as P

    if devices == 1:
        return lambda x: 1.001 * x + 1e-3

    def work(x):
        return x + 1e-3 * lax.pmean(x, "x")

    return jax.shard_map(work, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)


def peer(devices):
    """Prints its address, reads the other peer's, then runs a chain for each line `FIRST? LENGTH LOCKSTEP? NAME`."""
    import jax
    import numpy as np
    from jax.experimental import transfer

    step, sharding = make_step(devices)
    type_ = [jax.ShapeDtypeStruct((8 * devices,), np.float32, sharding=sharding)]
    server = transfer.start_transfer_server(jax.devices()[0].client, "127.0.0.1:0", ["127.0.0.1:0"] * 2)
    say(server.address())
    connection = server.connect(hear()[0])
    first = jax.device_put(np.ones(8 * devices, np.float32), sharding)
    while command := hear():
        begins, length, lockstep, name = (int(word) for word in command)
        flying = collections.deque()
        for hop in range(0 if begins else 1, length, 2):
            x = connection.pull(name + hop, type_)[0] if hop else first
            if lockstep:
                x.block_until_ready()
            y = step(x)
            if hop + 1 < length:
                server.await_pull(name + hop + 1, [y])
            flying.append(y)
            if len(flying) > MAX_EXECUTIONS_IN_FLIGHT:
                flying.popleft().block_until_ready()
        say(float(np.asarray(y)[0]))


def ray(devices):
    """Runs a chain for each line `LENGTH LOCKSTEP? ISLANDS NUMPY?`: on one island, or on both alternately.

    The arrays are NumPy's or JAX's.
    """
    os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}  # on 127.0.0.1 alone
    import numpy as np

    ray = importlib.import_module("ray")

    class Island:
        def __init__(self):
            self.step, self.sharding = make_step(devices)

        def run(self, x, as_numpy):
            import jax
            import numpy as np

            y = self.step(jax.device_put(x, self.sharding))
            return np.asarray(y) if as_numpy else y

    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        settings = {"include_dashboard": False, "logging_level": "ERROR", "_node_ip_address": "127.0.0.1"}
        ray.init(num_cpus=2, object_store_memory=1 << 28, log_to_driver=False, _temp_dir=folder, **settings)
        here = {"env_vars": {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}}
        actor = ray.remote(num_cpus=0, runtime_env=here)(Island)
        islands = [actor.remote() for _ in range(2)]
        first = np.ones(8 * devices, np.float32)
        ray.get([island.run.remote(first, True) for island in islands])
        say(ray.__version__)
        while command := hear():
            length, lockstep, count, as_numpy = (int(word) for word in command)
            x = first
            for hop in range(length):
                x = islands[hop % count].run.remote(x, bool(as_numpy))
                if lockstep:
                    ray.wait([x])
            say(float(np.asarray(ray.get(x))[0]))
        ray.shutdown()


def bare(devices):
    """Runs a chain in this process for each line `LENGTH`, with at most MAX_EXECUTIONS_IN_FLIGHT."""
    import jax
    import numpy as np

    step, sharding = make_step(devices)
    first = jax.device_put(np.ones(8 * devices, np.float32), sharding)
    say("ready")
    while command := hear():
        x, flying = first, collections.deque()
        for _ in range(int(command[0])):
            flying.append(x := step(x))
            if len(flying) > MAX_EXECUTIONS_IN_FLIGHT:
                flying.popleft().block_until_ready()
        say(float(np.asarray(x)[0]))


RUN = b"r" * 200
"""A message of a run, as long as ours; one returns when the run is done."""


def relay(devices):
    """Sends `LENGTH` messages for each line, through another process to a third, which has the computation."""
    (client, near), (far, host) = socket.socketpair(), socket.socketpair()
    if not os.fork():
        _close(client, host)  # otherwise the closing of the socket would not be seen
        _pass_on(near, far)
    _close(near, far)
    if not os.fork():
        _close(client)
        _compute(host, devices)
    _close(host)
    _received(client, len(RUN))
    say("ready")
    while command := hear():
        left = int(command[0])
        for sent in range(left):
            client.sendall(RUN)
            if sent >= 2 * MAX_EXECUTIONS_IN_FLIGHT:
                left -= len(_received(client, len(RUN))) // len(RUN)
        while left > 0:
            left -= len(_received(client, len(RUN))) // len(RUN)
        say(1.0)


def _close(*sockets):
    for one in sockets:
        one.close()


def _pass_on(one, other):
    while True:
        for ready in select.select((one, other), (), ())[0]:
            if not (data := ready.recv(1 << 16)):
                os._exit(0)
            (other if ready is one else one).sendall(data)


def _compute(sock, devices):
    import jax
    import numpy as np

    step, sharding = make_step(devices)
    x = jax.device_put(np.ones(8 * devices, np.float32), sharding)
    step(x).block_until_ready()
    sock.sendall(RUN)
    flying = collections.deque()
    while True:
        if not flying or select.select((sock,), (), (), 0)[0]:
            for _ in range(len(_received(sock, len(RUN))) // len(RUN)):
                flying.append(x := step(x))
        while len(flying) > MAX_EXECUTIONS_IN_FLIGHT or (flying and not select.select((sock,), (), (), 0)[0]):
            flying.popleft().block_until_ready()
            sock.sendall(RUN)


def _received(sock, size):
    """Receives whole messages, at least one."""
    data = b""
    while not data or len(data) % size:
        if not (more := sock.recv(size * 32)):
            os._exit(0)
        data += more
    return data


def say(what):
    print(what, flush=True)


def hear():
    return sys.stdin.readline().split()


if __name__ == "__main__":
    {"peer": peer, "ray": ray, "bare": bare, "relay": relay}[sys.argv[1]](int(sys.argv[2]))
