"""Names the messages and versions of the IFRT proxy protocol. All modules of this folder use it.

ifrt.proto is the project's own subset of the messages that jaxlib's client sends. A test compares it with the messages
in the installed jaxlib.
"""

from typing import Any

from pathways.dialect.protos import load_messages

SERVICE = "xla.ifrt.proxy.GrpcIfrtService"
MIN_PROTOCOL, MAX_PROTOCOL = 16, 25
"""The protocol versions that this server speaks."""
MAX_SERDES = 3
"""The newest format of serialized shardings and options that this server writes."""
STORE_METADATA = "ifrt-proxy-grpc-host-buffer-store-metadata-bin"
"""The gRPC metadata key that describes the buffer of a HostBufferStore stream."""
CHUNK_BYTES = 1 << 20
"""Size of one message of a HostBufferLookup stream."""


def bytes_field(size: int) -> bytes:
    """Encodes the beginning of a message whose only field is number 1 with `size` bytes. The caller sends them next."""
    head = bytearray(b"\x0a")
    while size >= 0x80:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head)


MESSAGES = load_messages("pathways.ifrt_proxy", "ifrt.binpb")
Request: Any = MESSAGES["IfrtRequest"]
Response: Any = MESSAGES["IfrtResponse"]
