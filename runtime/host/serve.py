"""The process of a host: `python -m pathways.runtime.host.serve` connects to its controller, and ends with it.

A thread reads messages, and hands them to the main thread, which does them in their order; only what must not wait
behind a run is done at once. When the stream ends, however it ends, the process does.
"""

import argparse
import os
import queue
import shutil
import signal
import socket
import sys
import threading
import traceback

from pathways.dialect.topology import Island
from pathways.runtime.host.host import Host
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.versions import VERSIONS


def serve() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--island", required=True)
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--platform", required=True)
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the controller
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(chosen.socket)
    connection = Connection(sock)
    host = Host(Island(chosen.island, devices=chosen.devices), chosen.platform, connection.post)
    connection.post(m.Hello(chosen.island, os.getpid(), VERSIONS))
    host.start()
    todo: queue.SimpleQueue[m.Message] = queue.SimpleQueue()
    threading.Thread(
        target=_read, args=(connection, host, todo, os.path.dirname(chosen.socket)), name="pathways-reader", daemon=True
    ).start()
    while True:
        try:
            host.receive(todo.get())
        except ConnectionEnded:
            os._exit(0)
        except BaseException:  # what a controller relies on is not there any more
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)


def _read(connection: Connection, host: Host, todo: "queue.SimpleQueue[m.Message]", folder: str) -> None:
    """Reads messages until the stream ends; `os._exit`, since other threads may be inside of XLA."""
    try:
        while True:
            message = connection.receive()
            if isinstance(message, m.TellTime):
                host.tell_time(message)
                continue
            if isinstance(message, m.Fence):
                host.fence(message)
            todo.put(message)
    except ConnectionEnded:
        shutil.rmtree(folder, ignore_errors=True)  # its controller may be unable to
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    serve()
