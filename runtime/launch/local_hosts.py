"""The hosts of a cluster whose controller is a process of its own: processes of its machine."""

import contextlib
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pathways.dialect.topology import Island
from pathways.runtime.launch.spawn import last_words, spawn

CONTROLLER, LOGS = "controller", "logs"
"""In the folder of a cluster: the socket of its controller, and the folder of what its processes print."""


@dataclass(eq=False)
class LocalHost:
    """A process that was started here."""

    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def ended(self) -> str:
        """Why it has ended, with its last words; empty while it runs."""
        if (code := self.process.poll()) is None:
            return ""
        why = f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with {code}"
        words = last_words(self.log)
        return f"{why}: {words}" if words else why

    def kill(self) -> None:
        """Ends it now, also where it is frozen; what is left of it goes when it has."""
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1)


class LocalLauncher:
    """Starts hosts as processes of this machine, which are joined by Unix sockets in a folder of this user's."""

    def __init__(self, folder: Path, platform: str) -> None:
        self._folder, self._platform = folder, platform
        (folder / LOGS).mkdir(mode=0o700, exist_ok=True)

    def start(self, island: Island, epoch: int) -> LocalHost:
        """Starts the host of an island. Raises OSError."""
        listen = self._folder / f"{island.name}-{epoch}"
        arguments = [
            "--socket", str(self._folder / CONTROLLER), "--listen", str(listen), "--island", island.name,
            "--devices", str(island.size), "--platform", self._platform,
        ]  # fmt: skip
        (self._folder / f"{island.name}-{epoch - 1}").unlink(missing_ok=True)
        path = self._folder / LOGS / f"{island.name}.log"
        return LocalHost(spawn("pathways.runtime.host.serve", arguments, path), path)
