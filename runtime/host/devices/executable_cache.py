"""Compiles each module once for all plans of a process, and keeps the executable. It loads code from the plan or from a
folder on disk, if that exists, in place of compiling.

The controller and each host have one `Executables`. The loader (`host/load/`) and transfers get all code from it.

Ready code comes from a plan (`pwc compile --with-executables`), from the folder named by PATHWAYS_CACHE, or from a
folder inside JAX's cache folder. Its name contains the module's hash, the number of devices, and a fingerprint. The
fingerprint covers platform, jaxlib, compile options, flags of XLA and device kind. A module is compiled again if its
ready code is for another machine, is signed by another user (`signing.py`), or cannot be read. Source locations are not
part of the hash, as in JAX: code stays ready if lines are added above it. XLA's profiles then show the old lines.
"""

import contextlib
import functools
import hashlib
import os
import platform
import threading
import warnings
from collections import deque
from collections.abc import Collection, Generator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import jaxlib.version

from pathways.dialect import signing
from pathways.dialect.activities import Activity
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.files import shared_with, write_folder
from pathways.dialect.jax_api import config
from pathways.dialect.mlir import without_locations
from pathways.dialect.platforms import platform_named
from pathways.runtime.errors import RefusedByXla, SharedCache
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.callbacks import CallbackRecord, Watched
from pathways.runtime.threads import started

_OPTIONS = "spmd shardy 1"
"""Part of the fingerprint. Must change whenever the compile options in `pjrt.py` change."""
_SAME_CODE = ("--xla_force_host_platform_device_count", "--xla_dump")
"""Begins of flags of XLA that do not change code."""
Wanted: TypeAlias = tuple[bytes | str, tuple[pjrt.Device, ...]]
"""A module and the devices that run it together."""
Owner: TypeAlias = tuple[str, Where | None]
"""The name of the computation that a module implements, and the user's source line."""
_OURS: Owner = ("a program that moves arrays", None)
MAX_IDLE = 1024
"""Maximum number of executables kept for later plans. Loaded plans hold their own. The limit frees unused code."""


class Executables:
    """Compiles each module once. Another set of as many devices reuses the compiled code."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = _private(folder or _folder())
        self.compiled = 0
        """Number of modules that this process compiled itself."""
        self._loaded: dict[Wanted, pjrt.Executable] = {}
        self._first: dict[tuple[bytes | str, int], pjrt.Executable] = {}
        self._raw: dict[tuple[bytes | str, int], bytes] = {}
        """Serialized code, kept because deserialized code must not be serialized again: it loses its functions."""
        self._ready: dict[str, bytes] = {}
        self._lock = threading.RLock()
        self._serializing = threading.Lock()
        self._recording = threading.local()
        self._calling: dict[CallbackRecord, pjrt.Executable] = {}
        """Code with host callbacks. A callback must not be freed while a device runs it."""
        self._retired: deque[CallbackRecord] = deque()
        """Records of such code that no plan uses. It is freed when its last launch is over."""

    def load(
        self,
        module: bytes | str,
        devices: Sequence[pjrt.Device],
        callbacks: Sequence[Watched] = (),
        owner: Owner = _OURS,
    ) -> pjrt.Executable:
        """Compiles a module, or reuses its code for as many other devices. Code with callbacks is never shared.

        Raises PWC0614 for a module that XLA refuses.
        """
        if callbacks:
            self._free_retired()
            with Activity("compiling with XLA", detail=owner[0]):
                made = self._calling[callbacks[0].record] = _compiled(module, devices, owner, callbacks)
            return made
        key = module, tuple(devices)
        used = self._used
        if used is not None:
            used.add((module, len(devices)))
        found = self._loaded.get(key)
        if found is None:
            with self._lock:
                found = self._loaded[key] = self._loaded.get(key) or self._make(*key, owner)
                if used is None:  # else `recording` must see all code of a plan
                    self.forget(MAX_IDLE)
        return found

    def retire(self, record: CallbackRecord) -> None:
        """Frees code with callbacks, which no plan uses, once its last launch is over.

        May be called during garbage collection, by any thread.
        """
        self._retired.append(record)

    def _free_retired(self) -> None:
        for _ in range(len(self._retired)):
            with contextlib.suppress(IndexError):  # another thread may have taken the last one
                record = self._retired.popleft()
                if record.is_over:
                    self._calling.pop(record, None)
                else:
                    self._retired.append(record)

    def load_all(self, wanted: Mapping[Wanted, Owner]) -> None:
        """Makes all missing code on all cores: first each module once, then its copies for other devices.

        Raises PWC0614 for a module that XLA refuses.
        """
        with self._lock:  # not held while code is made: other runs may need code for a transfer
            if self._used is None:
                self.forget(MAX_IDLE)
            self._free_retired()
            missing = [key for key in wanted if key not in self._loaded]
        missing.sort(key=lambda key: len(key[0]), reverse=True)  # the slowest module must not start last
        with Activity("compiling with XLA", len(missing), "executables") as making:
            first = {(module, len(devices)): (module, devices) for module, devices in missing}
            self._make_all(first.values(), wanted, making)
            self._make_all([key for key in missing if key not in self._loaded], wanted, making)

    def _make_all(self, missing: Collection[Wanted], owners: Mapping[Wanted, Owner], making: Activity) -> None:
        """Makes code on plain threads. Threads of `concurrent.futures` cannot start after the main thread has ended."""
        left, failures = deque(missing), list[BaseException]()

        def work() -> None:
            with contextlib.suppress(IndexError):
                while not failures:
                    key = left.popleft()
                    making.detail = owners[key][0]
                    try:
                        found = self._make(*key, owners[key])
                    except Exception as error:
                        failures.append(error)
                        return
                    with self._lock:
                        self._loaded[key] = found
                        making.done += 1

        others = [threading.Thread(target=work) for _ in range(min(os.cpu_count() or 1, len(left)) - 1)]
        others = [thread for thread in others if started(thread)]
        try:
            work()
        finally:
            left.clear()
            for thread in others:
                thread.join()
        if failures:
            raise failures[0]

    @property
    def kept(self) -> int:
        """The number of cached executables: one per module and set of devices."""
        return len(self._loaded)

    def forget(self, keep: int = 0) -> None:
        """Drops the oldest executables until `keep` are left. Loaded plans keep their own."""
        with self._lock:
            for key in list(self._loaded)[: max(0, len(self._loaded) - keep)]:
                del self._loaded[key]
            for kind in list(self._first)[: max(0, len(self._first) - keep)]:
                self._first.pop(kind, None)
                self._raw.pop(kind, None)

    def _make(self, module: bytes | str, devices: tuple[pjrt.Device, ...], owner: Owner) -> pjrt.Executable:
        kind = module, len(devices)
        if not all(pjrt.is_here(d) for d in devices):  # the code is specific to one process of several
            return _compiled(module, devices, owner)
        first = self._first.get(kind)
        if first is not None:
            with contextlib.suppress(*pjrt.FAILURES):  # a platform that cannot load the code again compiles it
                return pjrt.deserialize(self._serialized(kind, first), devices)
        made = self._from_ready(module, devices)
        if made is None:
            made = _compiled(module, devices, owner)
            with self._lock:
                self.compiled += 1
            self._keep(module, made, devices)
        self._first.setdefault(kind, made)
        return made

    def _from_ready(self, module: bytes | str, devices: tuple[pjrt.Device, ...]) -> pjrt.Executable | None:
        if not self._ready and self.folder is None:
            return None
        name = ready_name(module, devices)
        signed = self._ready.get(name)
        if signed is not None:
            raw = signing.opened(name, signed)
        else:
            raw = None if self.folder is None else signing.read_signed(self.folder, name)
        if raw is None:
            return None
        with contextlib.suppress(*pjrt.FAILURES):
            made = pjrt.deserialize(raw, devices)
            self._raw[module, len(devices)] = raw
            return made
        return None

    def _serialized(self, kind: tuple[bytes | str, int], first: pjrt.Executable) -> bytes:
        with self._serializing:
            raw = self._raw.get(kind)
            if raw is None:
                raw = self._raw[kind] = pjrt.serialize(first)
            return raw

    def _keep(self, module: bytes | str, made: pjrt.Executable, devices: tuple[pjrt.Device, ...]) -> None:
        """Writes code to the cache folder atomically. A full disk is not an error."""
        if self.folder is None:
            return
        with contextlib.suppress(PathwaysError, *pjrt.FAILURES):
            raw = self._raw[module, len(devices)] = pjrt.serialize(made)
            signing.write_signed(self.folder, ready_name(module, devices), raw)

    def offer(self, ready: Mapping[str, bytes]) -> None:
        """Adds ready code from a plan file."""
        self._ready.update(ready)

    @contextlib.contextmanager
    def recording(self) -> Generator[set[tuple[bytes | str, int]]]:
        """Records each module that this thread loads during a block, with its number of devices."""
        before, used = self._used, set[tuple[bytes | str, int]]()
        self._recording.used = used
        try:
            yield used
        finally:
            self._recording.used = before

    @property
    def _used(self) -> set[tuple[bytes | str, int]] | None:
        return getattr(self._recording, "used", None)

    def serialized(self, used: set[tuple[bytes | str, int]]) -> dict[str, bytes]:
        """Returns the signed ready code of loaded modules, by name."""
        found: dict[str, bytes] = {}
        for kind in used:
            first = self._first.get(kind)
            if first is not None:
                name = ready_name(kind[0], pjrt.devices_of(first))
                found[name] = signing.sign(name, self._serialized(kind, first))
        return dict(sorted(found.items()))


def _compiled(
    module: bytes | str, devices: Sequence[pjrt.Device], owner: Owner, callbacks: Sequence[Watched] = ()
) -> pjrt.Executable:
    try:
        return pjrt.compile_module(module, devices, callbacks)
    except pjrt.FAILURES as error:
        name, where = owner
        cause, kind = str(error)[:_MAX_CAUSE_CHARS], devices[0].platform
        refused = RefusedByXla(computation=name, cause=cause, devices=len(devices), kind=kind, where=where)
        raise PathwaysError(refused) from None


_MAX_CAUSE_CHARS = 2000
"""Maximum length of XLA's error text in our error: XLA may print a whole computation."""


def ready_name(module: bytes | str, devices: Sequence[pjrt.Device]) -> str:
    """Returns the name `FINGERPRINT/MODULE-DEVICES`. Code with an equal name runs without changes."""
    return f"{fingerprint(devices[0])}/{_digest(module)}-{len(devices)}"


@functools.lru_cache(MAX_IDLE)
def _digest(module: bytes | str) -> str:
    raw = without_locations(module) if isinstance(module, bytes) else module.encode()
    return hashlib.sha256(raw).hexdigest()[:32]


def fingerprint(device: pjrt.Device) -> str:
    """Hashes everything that ready code depends on, except its module."""
    parts = [device.platform, str(device.device_kind), jaxlib.version.__version__, _OPTIONS, _flags()]
    parts.append(_host_code() if platform_named(device.platform).on_host else str(device.client.platform_version))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _flags() -> str:
    """Returns the flags of XLA that this process was given and that change code."""
    given = [flag for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS") for flag in os.environ.get(name, "").split()]
    return " ".join(sorted(flag for flag in given if not flag.startswith(_SAME_CODE)))


@functools.cache
def _host_code() -> str:
    """Describes the instruction set extensions of this host's CPU."""
    text = platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return f"{text} {line}"
    return f"{text} {platform.processor()}"


def _folder() -> Path | None:
    """Returns the folder that PATHWAYS_CACHE names, or else one in JAX's cache folder. An empty PATHWAYS_CACHE: none.

    Users who share JAX's folder each have their own folder in it.
    """
    named = os.environ.get("PATHWAYS_CACHE")
    if named is not None:
        return Path(named).expanduser() if named else None
    of_jax: str | None = config.jax_compilation_cache_dir if config.jax_enable_compilation_cache else None
    if not of_jax or "://" in of_jax:
        return None
    return Path(of_jax).expanduser() / f"pathways-{os.geteuid()}"


def _private(folder: Path | None) -> Path | None:
    """Creates the folder if it is missing. Warns and returns None if other users can change files in it."""
    if folder is None:
        return None
    with contextlib.suppress(PathwaysError):
        write_folder(folder, {}, mode=0o700)
    problem = shared_with(folder)
    if problem is None:
        return folder
    refused = SharedCache(folder=str(folder), problem=problem)
    warnings.warn(refused.render(), RuntimeWarning, stacklevel=2)
    return None
