"""Tests clients that share devices: isolation, memory limits, suspension and cleanup."""

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.clients import X, make, on
from support.clusters import becomes
from support.codes import code_of

import pathways as pw
from pathways.api.process import process
from pathways.runtime.host.devices.freed_memory import THREAD

jit: Any = jax.jit


def settled() -> bool:
    return process().controller.flights.drain(timeout=20)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event that is set once a run must wait for its slot or for memory."""
    event, controller = threading.Event(), process().controller
    real = controller.patience

    def patience(*of: Any) -> None:
        event.set()
        real(*of)

    monkeypatch.setattr(controller, "patience", patience)
    return event


def test_only_its_own_client_can_use_an_array() -> None:
    program = make(1)
    ours = program(X)
    with pw.Client("bob") as bob:
        theirs = program(X)
        np.testing.assert_array_equal(np.asarray(program(theirs)), X + 2)
        assert code_of(program, ours) == "PWC0508"
        assert code_of(np.asarray, ours) == "PWC0508"
        assert "bob" in str(pw.status())
    assert code_of(np.asarray, theirs) == "PWC0509" and code_of(program, theirs) == "PWC0509"
    assert code_of(bob.__enter__) == "PWC0509" and "closed" in repr(bob)
    assert settled() and "bob" not in str(pw.status())
    assert "pw.Array" in repr(theirs)
    np.testing.assert_array_equal(np.asarray(program(ours)), X + 2)


def test_submit_returns_futures_and_arrays_are_awaitable() -> None:
    program = make(1)
    client = pw.Client("carol", weight=2)

    def train(x: Any) -> float:
        for _ in range(3):
            x = program(x)
        return float(np.asarray(x).sum())

    first, second = client.submit(train, X), client.submit(train, X + 1)
    assert first.result(timeout=60) == float((X + 3).sum()) and second.result(timeout=60) == float((X + 4).sum())

    async def both() -> list[Any]:
        arrays = [program(X), program(X + 1)]
        return [np.asarray(await a) for a in arrays]

    np.testing.assert_array_equal(asyncio.run(both())[1], X + 2)
    client.close()
    assert code_of(client.submit, train, X) == "PWC0509"
    assert code_of(pw.Client, "nobody", 0) == "PWC0104"


def test_many_clients_share_devices() -> None:
    shared = on()
    programs = [make(i, shared) for i in range(4)]
    wrong: list[Any] = []

    def work(number: int) -> None:
        with pw.Client(f"client{number}", weight=1 + number):
            x = programs[number % 4](X)
            for _ in range(50):
                x = programs[number % 4](x)
            expected = X + 51 * (number % 4)
            if not np.array_equal(np.asarray(x), expected):
                wrong.append((number, np.asarray(x)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    assert not wrong and settled()
    scheduler = process().controller.run_queue.scheduler
    assert not scheduler.waiting and not scheduler.running and not scheduler.active


def limited(memory: int, size: int = 1024) -> Any:
    call = jit(lambda x: x * 2.0, in_shardings=on(1), donate_argnums=())
    program = pw.program(lambda x: call(x))
    lowered = program.lower(np.ones(size, np.float32))
    return lowered.compile(f"islands=1,devices=1,memory={memory}")


def test_a_run_does_not_wait_for_memory_held_by_its_own_client() -> None:
    compiled = limited(3 * 4096)  # one run takes two arrays
    host = np.ones(1024, np.float32)
    first = compiled(host)
    second = compiled(first)
    assert settled()
    with pytest.raises(pw.PathwaysError) as caught:
        kept = [compiled(host)]
        kept.append(compiled(host))
    assert caught.value.code == "PWC0507" and "main" in str(caught.value)
    assert "held by main" in str(pw.status())
    del first, second
    gc.collect()
    np.testing.assert_array_equal(np.asarray(compiled(host)), 2 * host)


def test_a_run_waits_for_memory_held_by_another_client(waits: threading.Event) -> None:
    compiled = limited(3 * 4096 + 1)
    host = np.ones(1024, np.float32)
    gate, holding = threading.Event(), threading.Event()

    def hold() -> None:
        with pw.Client("holder"):
            kept = [compiled(host)]
            kept.append(compiled(kept[0]))
            kept[1].block_until_ready()
            holding.set()
            gate.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert holding.wait(60)
    found: list[Any] = []

    def want() -> None:
        with pw.Client("wanter"):
            found.append(np.asarray(compiled(host)))

    wanter = threading.Thread(target=want)
    wanter.start()
    assert becomes(lambda: "waiting" in str(pw.status())) and waits.is_set() and not found
    gate.set()
    wanter.join(60)
    holder.join(60)
    np.testing.assert_array_equal(found[0], 2 * host)
    assert settled() and not any(process().controller.ledger.reserved.values())


def test_closing_a_client_cancels_its_waiting_run(waits: threading.Event) -> None:
    compiled = limited(3 * 4096 + 2)
    host = np.ones(1024, np.float32)
    first = compiled(host)
    second = compiled(first)
    codes: list[str] = []
    client = pw.Client("impatient")

    def want() -> None:
        with client:
            codes.append(code_of(compiled, host))

    wanter = threading.Thread(target=want)
    wanter.start()
    assert waits.wait(60)
    assert "impatient" in str(pw.status())
    client.close()
    wanter.join(60)
    assert codes == ["PWC0509"]
    np.testing.assert_array_equal(np.asarray(second), 4 * host)


def test_a_run_that_needs_more_than_all_memory_is_refused() -> None:
    big = limited(1 << 20, size=8192)
    process().controller.ledger.limits.update(
        dict.fromkeys(next(iter(big._loaded._peaks)) and big._loaded._peaks, 4096)
    )
    assert code_of(big, np.ones(8192, np.float32)) == "PWC0506"


@pytest.mark.parametrize("to_disk", [False, True])
def test_a_client_suspends_and_resumes(to_disk: bool, tmp_path: Path) -> None:
    shared = on()
    program, other = make(1, shared), make(2, shared)
    with pw.Client("sleeper") as client:
        x = program(X)
        y = program(x)
        assert client.suspend(tmp_path if to_disk else None) == 2 * X.nbytes
        assert len(list(tmp_path.iterdir())) == (2 if to_disk else 0)
        assert code_of(np.asarray, x) == "PWC0515" and code_of(program, x) == "PWC0515" and "pw.Array" in repr(x)
        assert client.suspend() == 0
        with pw.Client("awake"):
            np.testing.assert_array_equal(np.asarray(other(X)), X + 2)
        client.resume()
        np.testing.assert_array_equal(np.asarray(program(y)), X + 3)
        np.testing.assert_array_equal(np.asarray(x), X + 1)
    assert not list(tmp_path.iterdir())


def test_suspending_reports_unusable_folders_and_resuming_missing_files(tmp_path: Path) -> None:
    program = make(1)
    with pw.Client("sleeper") as client:
        x, y = program(X), program(X)
        file = tmp_path / "file"
        file.write_text("")
        assert code_of(client.suspend, file) == "PWC0606"
        np.testing.assert_array_equal(np.asarray(x), X + 1)  # the failed call has changed nothing
        client.suspend(tmp_path / "new" / "folder")
        first, second = (tmp_path / "new" / "folder").iterdir()
        first.unlink()
        client.resume()
        kept = [a for a in (x, y) if code_or_none(a) is None]
        assert len(kept) == 1 and {code_or_none(a) for a in (x, y)} == {None, "PWC0517"}
        np.testing.assert_array_equal(np.asarray(kept[0]), X + 1)
        assert not second.exists()


def code_or_none(array: pw.Array) -> str | None:
    try:
        array.block_until_ready()
    except pw.PathwaysError as error:
        return error.code
    return None


def test_fetching_more_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x = make(1)(X)
    monkeypatch.setattr(process().controller, "fetch_limit", 16)
    assert code_of(np.asarray, x) == "PWC0516"
    monkeypatch.setattr(process().controller, "fetch_limit", 32)
    np.testing.assert_array_equal(np.asarray(x), X + 1)


@pytest.mark.embedded
def test_threads_end_after_their_work() -> None:
    hosts = set(pathways_threads())  # threads of other tests, which end with their hosts
    hosts = {t for t in hosts if t.name in ("pathways-loop", "pathways-eager", "pathways-send")}
    program = make(3)
    for _ in range(20):
        program(X).block_until_ready()
    assert settled()
    for thread in set(pathways_threads()) - hosts:
        thread.join(20)
    assert not [t.name for t in pathways_threads() if t not in hosts]


def pathways_threads() -> list[threading.Thread]:
    """Lists threads of this package, except the one that returns freed memory and lives as long as the process."""
    named = [t for t in threading.enumerate() if t.name.startswith("pathways-")]
    return [t for t in named if t.name != THREAD]
