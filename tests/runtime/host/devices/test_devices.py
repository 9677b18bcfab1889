"""Tests that devices of a process, of JAX and of a process group create the iterator class of jaxlib at once."""

import subprocess
import sys

CHECK_ITERATOR = """
import os, socket
from jaxlib import _jax
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.group import ProcessGroup, make_group_devices
def group_of_one():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % free.getsockname()[1]
    service = _jax.get_distributed_runtime_service(address, 1)
    return service, make_group_devices(2, ProcessGroup(address, 1, 0, 10, "127.0.0.1"))
devices = {made}
made = [kind for kind in object.__subclasses__() if kind.__name__ == "ifrt_device_iterator"]
assert len(made) == 1 and hasattr(made[0], "__next__"), made
os._exit(0)  # the service of a gang cannot end before its members
"""


def check_iterator(made: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", CHECK_ITERATOR.format(made=made)], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr


def test_making_devices_creates_the_iterator_class_before_threads_start() -> None:
    """Two threads loaded a plan: jaxlib created the class in one; the other saw it incomplete ("non-iterator")."""
    check_iterator("pjrt.make_devices(2)")


def test_host_devices_create_the_iterator_class() -> None:
    check_iterator("pjrt.host_devices()")


def test_devices_of_a_process_group_create_the_iterator_class() -> None:
    check_iterator("group_of_one()")
