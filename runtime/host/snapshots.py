"""Writes arrays of a host to the folder of a `pw.save` snapshot, and reads them back. Each client has its own thread
for this. `Host` uses it.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pathways.dialect.array_files import ArrayFile, read_array_file
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.folders import own_folder
from pathways.runtime.host.client_threads import ClientThreads
from pathways.runtime.host.devices.layouts import Shards
from pathways.runtime.host.devices.saved_arrays import read_shards, write_shards
from pathways.runtime.host.load.loaded_part import HostPart
from pathways.runtime.host.posting import MakeAnswer, Post
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.ids import client_of


class Snapshots:
    """Writes and reads arrays in message order.

    `answer` answers a request through the given post, with the result of the given work or with its error.
    """

    def __init__(self, answer: Callable[[int, MakeAnswer, Post], None]) -> None:
        self._answer = answer
        self._threads = ClientThreads("pathways-snapshots")

    def write(self, message: m.WriteArray, array: Any, post: Post) -> None:
        """Writes an array, if there is one. The array does not change meanwhile: runs overwrite copies of it."""

        def work() -> str:
            if array is None:
                raise PathwaysError(BadMessage(have_=f"array {message.array}", rule="an array of this host"))
            if isinstance(array, Poison):
                raise array.error()
            if isinstance(array, Shards):  # all shards are on other hosts of the island
                return ""
            folder, file = place_of(message)
            _check_type(file, ArrayType(tuple(array.shape), str(array.dtype)))
            write_shards(array, folder, file)
            return ""

        self._threads.put(client_of(message.array), lambda: self._answer(message.request, work, post))

    def read(self, message: m.ReadArray, plans: Mapping[int, HostPart], arrays: dict[int, Any], post: Post) -> None:
        """Reads an argument of a plan onto the devices of this input, and stores it under its number."""

        def work() -> str:
            folder, file = place_of(message)
            if message.plan not in plans or message.input not in plans[message.plan].inputs:
                raise PathwaysError(BadMessage(have_=f"an argument of plan {message.plan}", rule="a plan of this host"))
            wanted = plans[message.plan].inputs[message.input]
            _check_type(file, wanted.type)
            if wanted.side is not None:
                arrays[message.array] = read_shards(folder, file, wanted.side)
            return ""

        self._threads.put(client_of(message.array), lambda: self._answer(message.request, work, post))


def place_of(message: m.WriteArray | m.ReadArray) -> tuple[Path, ArrayFile]:
    """Returns the folder and the file that a message names. Raises PWC0911 if they are not those of a snapshot."""
    try:
        return own_folder(os.fsdecode(message.folder)), read_array_file(json.loads(message.file))
    except (ValueError, KeyError, TypeError, RecursionError, OSError) as error:
        have, rule = f"{type(message).__name__}: {error}", "a file in a folder that was created for a snapshot"
        raise PathwaysError(BadMessage(have_=have, rule=rule)) from None


def _check_type(file: ArrayFile, type_: ArrayType) -> None:
    if file.type != type_:
        raise PathwaysError(BadMessage(have_=f"a file of {file.type} for an array of {type_}", rule="equal types"))
