"""Tests the classes of protobuf messages: none is freed, which could crash a process with several threads."""

import gc
import weakref
from typing import Any

from google.protobuf import message_factory

from pathways.dialect.plan.codec import schema


def test_classes_of_messages_are_never_freed() -> None:
    kinds: list[weakref.ref[Any]] = [weakref.ref(message_factory.GetMessageClass(kind)) for kind in schema().values()]
    gc.collect()
    assert len(kinds) > 20 and all(kind() is not None for kind in kinds)
