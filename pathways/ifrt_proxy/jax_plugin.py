"""Makes JAX 0.10 and 0.11 know the platform `proxy`, on which a script uses the devices that `pwc proxy` serves.

JAX 0.12 knows the platform already.

JAX calls `initialize` when it discovers plug-ins, in every process where this package is installed. It is the compat
module of this folder: no public function of JAX registers a client of the IFRT proxy.
"""

import os
from importlib import import_module
from typing import Any

PLATFORM, TARGET = "proxy", "JAX_BACKEND_TARGET"


def initialize() -> None:
    """Registers the platform if the environment asks for it and JAX does not have it."""
    if PLATFORM not in os.environ.get("JAX_PLATFORMS", "") or not os.environ.get(TARGET):
        return
    bridge: Any = import_module("jax._src.xla_bridge")
    if PLATFORM in getattr(bridge, "_backend_factories", ()):
        return
    try:
        client: Any = import_module("jaxlib._ifrt_proxy")
    except ImportError:  # this jaxlib has no client: JAX reports the unknown platform
        return

    def connect() -> Any:
        return client.get_client(os.environ[TARGET], client.ClientConnectionOptions())

    bridge.register_backend_factory(PLATFORM, connect, priority=-1)
