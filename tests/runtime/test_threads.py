"""Tests starting threads where the system refuses."""

import threading

import pytest
from support.codes import code_of

from pathways.runtime.threads import ThreadPool, start_thread, started


def test_a_thread_that_cannot_be_started_is_refused_with_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert code_of(start_thread, "pathways-test", done.set) == "PWC0521"
        assert not started(threading.Thread(target=done.set))
        with ThreadPool(2, "pathways-test") as pool:
            assert code_of(pool.submit, done.set) == "PWC0521"
            patch.undo()
            assert pool.submit(int).result() == 0 and not done.is_set(), "what was refused is not done later"
    assert not done.is_set()
    with ThreadPool(2, "pathways-test") as pool:
        assert list(pool.map(abs, [-1, 2])) == [1, 2]
    with pytest.raises(RuntimeError, match="shutdown"):
        pool.submit(int)
    start_thread("pathways-test", done.set)
    assert done.wait(10)
