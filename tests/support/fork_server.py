"""The server that forks Python processes for the tests: `python -m support.fork_server` (forked_python.py).

It has imported JAX and this project, and has no threads and no devices. Each connection asks for one process: the
server answers with its number, waits for its end, and answers with its exit code.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import selectors
import socket
import struct
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from support import forked_python
from support.forked_python import Job
from support.left_behind import prefix_of_fork_servers
from support.main_module import become

PRELOADED = (
    "jax",
    "numpy",
    "pathways",
    "pathways.api.testing",
    "pathways.cli.compile",
    "pathways.cli.inspect",
    "pathways.cli.run",
    "pathways.runtime.control.serve",
    "pathways.runtime.host.serve",
    "pathways.runtime.launch.group_service",
)


def serve_from_a_fork() -> None:
    """Forks the server from this process, with all that it has imported and changed, in place of starting one."""
    forked_python.state.address = str(Path(tempfile.mkdtemp(prefix=prefix_of_fork_servers())) / "s")
    told, tell = os.pipe()
    ready, say_ready = os.pipe()
    if os.fork():
        os.close(told)
        os.close(say_ready)
        os.read(ready, 1)
        os.close(ready)
        forked_python.state.inherited = tell  # its end, with this process, ends the server
        return
    os.close(tell)
    os.close(ready)
    os.dup2(told, 0)
    code = 1
    try:
        job = serve(lambda: os.write(say_ready, b"r"))
        become(job)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            _finish()
        os._exit(code)


def _finish() -> None:
    """Does what the interpreter does at its end."""
    vars(threading)["_shutdown"]()
    vars(atexit)["_run_exitfuncs"]()
    sys.stdout.flush()
    sys.stderr.flush()


def serve(say_ready: Callable[[], object] = lambda: print("ready", flush=True)) -> Job:
    """Forks a process for each connection until standard input ends; returns only within a forked process."""
    forked_python.state.environment = dict(os.environ)
    for name in PRELOADED:
        importlib.import_module(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(forked_python.state.address)
    listener.listen(64)
    gc.collect()
    gc.freeze()
    say_ready()
    waiting = selectors.DefaultSelector()
    waiting.register(listener, selectors.EVENT_READ, None)
    waiting.register(0, selectors.EVENT_READ, None)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                job = _forked(connection, waiting, listener)
                if job is not None:
                    return job
            elif key.fileobj == 0:
                _end()
            else:
                _pass_on_code(waiting, key)


def _end() -> NoReturn:
    with contextlib.suppress(OSError):
        os.unlink(forked_python.state.address)
        os.rmdir(Path(forked_python.state.address).parent)
    os._exit(0)


def _forked(connection: socket.socket, waiting: selectors.BaseSelector, listener: socket.socket) -> Job | None:
    """Forks one process; returns what to do in it, None in the server."""
    head, ends, _, _ = socket.recv_fds(connection, 4, 3)
    if len(head) < 4:
        connection.close()
        return None
    raw = b""
    while len(raw) < struct.unpack("!I", head)[0]:
        more = connection.recv(1 << 20)
        if not more:  # the process that asked has ended
            connection.close()
            return None
        raw += more
    pid = os.fork()
    if pid == 0:
        sockets = [listener, connection, *(key.data[1] for key in waiting.get_map().values() if key.data)]
        waiting.close()  # now: its descriptor would be another's when the garbage collector closes it
        _keep_standard_streams(ends, sockets)
        return Job(**json.loads(raw))
    for end in ends:
        os.close(end)
    connection.sendall(struct.pack("!I", pid))
    waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))
    return None


def _pass_on_code(waiting: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    """Tells who has started a process that it has ended, and how."""
    pid, connection = key.data
    _, status = os.waitpid(pid, 0)
    waiting.unregister(key.fileobj)
    os.close(key.fd)
    with contextlib.suppress(OSError):  # who started it has ended
        connection.sendall(struct.pack("!i", os.waitstatus_to_exitcode(status)))
    connection.close()


def _keep_standard_streams(ends: Sequence[int], sockets: Sequence[socket.socket]) -> None:
    """Leaves a forked process its three standard streams alone."""
    for one in sockets:
        one.detach()
    kept = [os.dup(end) if end < 3 else end for end in ends]
    for number, end in enumerate(kept):
        os.dup2(end, number)
    os.closerange(3, 1 << 16)


if __name__ == "__main__":
    become(serve())
