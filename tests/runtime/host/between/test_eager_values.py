"""Tests arrays that are pushed to other hosts: values, failures, the sending thread and the size limit."""

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from support.streams import started_loop

import pathways as pw
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType, numpy_dtype
from pathways.dialect.plan.inbound_values import InboundValue, bits, inbound_values_of
from pathways.dialect.plan.part import part_of
from pathways.runtime.host.between import transfer_server
from pathways.runtime.host.between.data_plane import ArrayGroup
from pathways.runtime.host.between.eager_server import EagerServer
from pathways.runtime.host.between.eager_values import EagerOffer, Parcel, Sender, Sent, landed, sent
from pathways.runtime.host.between.inbox import Inbox
from pathways.runtime.host.between.link import EAGER_LIMIT, eager_limit
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.layouts import Shards
from pathways.runtime.host.run.frame import Frame
from pathways.runtime.host.run.progress import PreparedWave, Pulled, Work, drive
from pathways.runtime.wire.addresses import LOOPBACK

DTYPES = (
    "bool", "int4", "int8", "uint16", "int32", "int64", "uint64", "float8_e4m3fn", "bfloat16", "float16", "float32",
    "float64", "complex64", "complex128",
)  # fmt: skip
DEVICES = pjrt.make_devices(4)
MESH = Mesh(np.array(DEVICES).reshape(2, 2), ("x", "y"))
SPECS = (P(), P("x"), P(None, "y"), P("y", "x"), P(("x", "y")))
jit: Any = jax.jit


class Ends:
    """A connection between two hosts, which are both this process."""

    def __init__(self) -> None:
        self.outbox = EagerServer(LOOPBACK, started_loop()).outbox()
        self.box = Inbox(self.outbox.eager_address, 1 << 16)

    def pull(self, number: int, types: list[ArrayType], shardings: list[Any]) -> list[Sent]:
        return sent(self.box.expect(number), ArrayGroup(types, shardings))


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_arrive_as_they_were_sent(dtype: str) -> None:
    ends, numpy = Ends(), numpy_dtype(dtype)
    shapes = ((4, 4), (4, 0), (8, 12))
    for number, spec in enumerate(SPECS):
        shardings = [NamedSharding(MESH, spec)] * len(shapes) + [pjrt.on_device(DEVICES[1])]
        types = [ArrayType(shape, dtype) for shape in (*shapes, ())]
        hosts = [(np.arange(np.prod(t.shape), dtype=np.int64).reshape(t.shape) % 5).astype(numpy) for t in types]
        with jax.enable_x64(True):
            arrays = [jax.device_put(host, sharding) for host, sharding in zip(hosts, shardings, strict=True)]
        parcel = Parcel(ends.outbox, 0, number, arrays)
        parcel.send()
        for piece, host, sharding in zip(ends.pull(number, types, shardings), hosts, shardings, strict=True):
            piece.block_until_ready()
            (array,) = landed([piece])
            assert array.dtype == numpy and array.sharding.is_equivalent_to(sharding, host.ndim)
            assert np.asarray(array).tobytes() == host.tobytes()
            for shard in array.addressable_shards:
                assert np.asarray(shard.data).tobytes() == host[shard.index].tobytes()
        assert ArrayGroup(types, shardings).bytes == sum(s.data.nbytes for a in arrays for s in a.addressable_shards)


def test_an_array_of_the_wrong_size_is_refused() -> None:
    ends, side = Ends(), pjrt.on_device(DEVICES[0])
    for number, size in enumerate((3, 5)):
        Parcel(ends.outbox, 0, number, [jax.device_put(np.zeros(size, np.float32), side)]).send()
        (piece,) = ends.pull(number, [ArrayType((4,), "float32")], [side])
        piece.block_until_ready()
        with pytest.raises(ValueError):
            landed([piece])


def test_a_failed_array_raises_its_error_at_the_receiver() -> None:
    ends, type_, tested = Ends(), ArrayType((2,), "float32"), vars(transfer_server)
    (struct,) = ArrayGroup([type_], [pjrt.on_device(jax.devices()[0])]).structs
    array = tested["_transfer"].make_error_array(struct, "on purpose")
    Sender().take(Parcel(ends.outbox, 0, 1, [array]))
    (piece,) = ends.pull(1, [type_], [pjrt.on_device(DEVICES[0])])
    with pytest.raises(RuntimeError, match="on purpose"):
        piece.block_until_ready()
    gone = jnp.ones(2)
    gone.delete()
    Sender().take(Parcel(ends.outbox, 0, 2, [gone]))
    with pytest.raises(RuntimeError, match="deleted"):
        ends.pull(2, [type_], [pjrt.on_device(DEVICES[0])])[0].block_until_ready()


def test_a_ready_value_is_sent_before_an_earlier_unready_value() -> None:
    ends, sender, type_ = Ends(), Sender(), ArrayType((2,), "float32")
    side, there = pjrt.on_device(DEVICES[0]), threading.Event()

    class Later:
        """An array whose computation fails once the test sets `there`."""

        def is_deleted(self) -> bool:
            return False

        def is_ready(self) -> bool:
            return there.is_set()

        def block_until_ready(self) -> None:
            there.wait()
            raise RuntimeError("late")

    later: Any = Later()
    sender.take(Parcel(ends.outbox, 0, 1, [later]))
    sender.take(Parcel(ends.outbox, 0, 2, [jax.device_put(np.ones(2, np.float32), side)]))
    ends.pull(2, [type_], [side])[0].block_until_ready()
    (late,) = ends.pull(1, [type_], [side])
    assert not late.is_ready()
    there.set()
    with pytest.raises(RuntimeError, match="late"):
        late.block_until_ready()


def test_values_offered_before_a_reconnect_are_dropped() -> None:
    ends, type_, side = Ends(), ArrayType((2,), "float32"), pjrt.on_device(DEVICES[0])
    before = Parcel(ends.outbox, ends.outbox.anew, 1, [jax.device_put(np.zeros(2, np.float32), side)])
    ends.outbox.begin_anew(3)
    box = Inbox(ends.outbox.eager_address, 1 << 16, 3)
    before.send()
    Parcel(ends.outbox, ends.outbox.anew, 2, [jax.device_put(np.ones(2, np.float32), side)]).send()
    sent(box.expect(2), ArrayGroup([type_], [side]))[0].block_until_ready()
    assert not box.expect(1).is_ready()
    box.close()


def test_values_are_sent_by_the_caller_if_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathways.runtime.host.between.eager_values.started", lambda _: False)  # pyright: ignore
    ends = Ends()
    Sender().take(Parcel(ends.outbox, 0, 1, [jnp.ones(2)]))
    ends.pull(1, [ArrayType((2,), "float32")], [pjrt.on_device(DEVICES[0])])[0].block_until_ready()


class SendLog:
    """Records which thread sends a value: the sender's, or the caller's ("here")."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def take(self, _: Any) -> None:
        self.log.append("thread")

    def send(self) -> None:
        self.log.append("here")


@pytest.mark.parametrize(
    ("behind", "others", "asks", "sender"),
    [
        (1, False, True, "here"),
        (0, False, True, "thread"),  # the awaited value may arrive before
        (1, True, True, "thread"),  # another value may arrive before
        (1, False, False, "thread"),  # another launch comes first
    ],
)
def test_the_enqueuing_thread_sends_only_if_it_would_wait_anyway(
    behind: int, others: bool, asks: bool, sender: str
) -> None:
    frame, sends = Frame(0, ()), SendLog()
    box = Ends().box
    any_: Any = sends

    def work(coming: InboundValue) -> Work:
        yield (Pulled(Shards([Sent(any_, 0)]), frame, coming),)

    def offer(*_: Any, **__: Any) -> None:
        frame.unsent.append((1, EagerOffer(any_, any_)))

    comings = [InboundValue(1, 0, behind), *([InboundValue(2, 0, 0)] if others else [])]
    tasks: list[Any] = [(n, type("Task", (), {"start": lambda *_, c=c: work(c)})()) for n, c in enumerate(comings)]
    waves = [PreparedWave(0, [any_], tasks), PreparedWave(0, [], [], asks)]
    run: Any = type("Run", (), {"enqueue": offer})()
    next(drive(waves, frame, run))
    assert sends.log == [sender] and not frame.unsent
    box.close()


def test_an_unsent_value_of_the_last_wave_is_sent() -> None:
    frame, sends = Frame(0, ()), SendLog()
    any_: Any = sends
    run: Any = type("Run", (), {"enqueue": lambda *_, **__: frame.unsent.append((1, EagerOffer(any_, any_)))})()
    assert list(drive([PreparedWave(0, [any_])], frame, run)) == [] and sends.log == ["thread"]


def test_an_inbound_value_names_the_sent_values_that_it_depends_on() -> None:
    """A value of a chain depends on all values sent before it; a value of the other island's input depends on none."""
    made = pw.make_virtual_device_set()
    places = [NamedSharding(made.add_slice(devices=1, island=f"island{n}").mesh("x"), P()) for n in range(2)]
    f, g = (jit(lambda x: x + 1, in_shardings=place, out_shardings=place) for place in places)
    lowered = pw.program(lambda x, y: (f(g(f(g(f(x))))), f(g(y)))).lower(jnp.ones(2), jnp.ones(2))
    plan = lowered.compile(merge=False).plan
    part = part_of(plan, frozenset({"island0"}))
    found = inbound_values_of(plan, part.received, part.sent)
    assert sorted(coming.sent.bit_count() for coming in found.values()) == [0, 1, 2]
    every = bits(part.sent)
    assert sorted(every.values()) == [1 << n for n in range(len(part.sent))]


def test_the_eager_limit_must_be_a_valid_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert eager_limit() == 1 << 16
    monkeypatch.setenv(EAGER_LIMIT, "0")
    assert eager_limit() == 0
    for wrong in ("-1", "64k", "", "2000000"):
        monkeypatch.setenv(EAGER_LIMIT, wrong)
        with pytest.raises(PathwaysError) as caught:
            eager_limit()
        assert caught.value.code == "PWC0707"
