"""The hosts of a cluster whose controller is a process of its own: processes of its machine."""

import contextlib
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pathways.dialect.topology import Island
from pathways.runtime.launch.spawn import last_words, spawn
from pathways.runtime.wire.certificates import member_folder
from pathways.runtime.wire.credentials import Caller

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

    @property
    def comes_by_itself(self) -> bool:
        return False

    def is_it(self, caller: Caller) -> bool:
        """Whether a process is this one; none from elsewhere is."""
        return caller.member is None and caller.pid == self.pid

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

    def __init__(self, folder: Path, platform: str, ip: str = "", keys: Path | None = None) -> None:
        """With an address and a folder of keys (`wire/certificates.py`), clients from elsewhere reach them, too."""
        self._folder, self._platform = folder, platform
        self._ip, self._keys = ip, keys
        (folder / LOGS).mkdir(mode=0o700, exist_ok=True)

    def start(self, island: Island, epoch: int) -> LocalHost:
        """Starts the host of an island. Raises OSError."""
        listen = self._folder / f"{island.name}-{epoch}"
        arguments = [
            "--socket", str(self._folder / CONTROLLER), "--listen", str(listen), "--island", island.name,
            "--devices", str(island.size), "--platform", self._platform,
        ]  # fmt: skip
        if self._keys is not None:
            arguments += ["--ip", self._ip, "--keys", str(member_folder(self._keys, "host", island.name))]
        (self._folder / f"{island.name}-{epoch - 1}").unlink(missing_ok=True)
        path = self._folder / LOGS / f"{island.name}.log"
        return LocalHost(spawn("pathways.runtime.host.serve", arguments, path), path)
