"""Creates protobuf message classes from a compiled schema in a package's folder (`make proto`). The plan file and the
IFRT proxy use it. Generated code would bind users to one version of protobuf.
"""

from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def load_messages(package: str, file: str) -> dict[str, Any]:
    """Creates the classes of all top-level messages of a compiled schema, by name.

    Keep the result alive. Otherwise protobuf creates a class again at each use, and crashes if the garbage collector
    frees it while another thread requests it.
    """
    raw = resources.files(package).joinpath(file).read_bytes()
    pool = descriptor_pool.DescriptorPool()
    found: dict[str, Any] = {}
    for one in descriptor_pb2.FileDescriptorSet.FromString(raw).file:
        pool.Add(one)
        kinds = pool.FindFileByName(one.name).message_types_by_name
        found |= {name: message_factory.GetMessageClass(kind) for name, kind in kinds.items()}
    return found
