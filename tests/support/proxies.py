"""A TCP proxy between two processes that a test can cut: bytes stop, but both connections stay open."""

import contextlib
import socket
import threading
from collections.abc import Callable


class Proxy:
    """Forwards bytes to an address until `cut`, and again after `mend`."""

    def __init__(self, address: str, rewrite: Callable[[bytes], bytes] = bytes) -> None:
        """`rewrite` changes what passes."""
        self._rewrite = rewrite
        host, _, port = address.rpartition(":")
        self._target = host.strip("[]"), int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._passes = threading.Event()
        self._passes.set()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._passes.clear()

    def mend(self) -> None:
        self._passes.set()

    def close(self) -> None:
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self.mend()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._sockets.append(near)
                try:
                    far = socket.create_connection(self._target)
                except ConnectionError:  # a client that retries may connect when the target has exited
                    near.close()
                    continue
                self._sockets.append(far)
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._passes.wait()
                target.sendall(self._rewrite(data))
            target.shutdown(socket.SHUT_WR)
