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

MESSAGES = load_messages("pathways.ifrt_proxy", "ifrt.binpb")
Request: Any = MESSAGES["IfrtRequest"]
Response: Any = MESSAGES["IfrtResponse"]
