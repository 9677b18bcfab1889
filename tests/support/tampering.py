"""Real clients whose bytes are changed, repeated, cut or reordered on their way: `python -m support.tampering SEED N`.

Each client is a forked process, which ends itself: what was changed may leave it waiting for ever.
"""

import os
import random
import sys
import threading
from typing import Any

import numpy as np

import pathways as pw
from pathways.runtime.wire.frames import HEADER
from pathways.runtime.wire.peer import Peer
from support.client_programs import X, both, endless

UNCHANGED_WRITES = range(12, 60)
"""How many writes of a client pass before the first is changed."""
LASTS_S = 1.5
"""Seconds after which a client ends that writes nothing, or that has changed a write."""
EXIT_CODE_OF_REFUSED = 3
"""The exit code of a client that raised an error."""


class Tampering:
    """Changes what a process sends, from a certain write on."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._left = rng.choice(UNCHANGED_WRITES)
        self._held: bytes = b""
        self._end = threading.Timer(LASTS_S, os._exit, (0,))
        self._end.start()
        peers: Any = Peer
        queue = peers._queue
        peers._queue = lambda peer, pieces: queue(peer, [self.next_write(b"".join(pieces))])

    def next_write(self, data: bytes) -> bytes:
        """Returns what is written in place of data: the same until the first write to be changed."""
        self._left -= 1
        if self._left >= 0:
            self._wait()
        return data if self._left > 0 or not data else self._changed(data)

    def _wait(self) -> None:
        """Ends the process LASTS_S from now, unless it is called again."""
        self._end.cancel()
        self._end = threading.Timer(LASTS_S, os._exit, (0,))
        self._end.start()

    def _changed(self, data: bytes) -> bytes:
        rng, at = self._rng, self._rng.randrange(len(data))
        match rng.choice(("bit", "header", "cut", "repeat", "reorder", "garbage", "honest")):
            case "bit":
                return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
            case "header":
                return rng.randbytes(HEADER.size) + data[HEADER.size :]
            case "cut":
                return data[:at]
            case "repeat":
                return data * rng.randrange(2, 5)
            case "reorder":
                self._held, data = data, self._held
                return data
            case "garbage":
                return data[:at] + rng.randbytes(rng.randrange(1, 64)) + data[at:]
            case _:
                return data


def be_a_client(seed: str) -> None:
    """Runs programs with bytes that are changed, until an error or the end of its time."""
    rng = random.Random(seed)
    with pw.connect(os.environ["PATHWAYS_ADDRESS"]):
        both(X)
        Tampering(rng)
        loops = endless(X) if rng.random() < 0.3 else None
        for turn in range(1000):
            value = both(X + turn)
            if rng.random() < 0.3:
                np.asarray(value)
        del loops


def main(seed: str, count: str) -> None:
    """Runs clients one after another; prints how many of them raised an error."""
    refused = 0
    for number in range(int(count)):
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            try:
                be_a_client(f"{seed} {number}")
            except pw.PathwaysError:
                os._exit(EXIT_CODE_OF_REFUSED)
            finally:
                os._exit(0)
        refused += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == EXIT_CODE_OF_REFUSED
    print(refused)


if __name__ == "__main__":
    main(*sys.argv[1:])
