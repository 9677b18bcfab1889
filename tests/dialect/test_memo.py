"""Memos ask once for each object, per thread, and hold a limited number of objects."""

import threading

import pytest

from pathways.dialect import memo


def test_a_remembered_function_is_asked_once_until_it_is_forgotten() -> None:
    asked: list[int] = []

    def double(value: int) -> int:
        asked.append(value)
        return 2 * value

    recall = memo.remembered(double)
    assert [recall(3), recall(4), recall(3)] == [6, 8, 6] and asked == [3, 4]
    thread = threading.Thread(target=lambda: recall(3))
    thread.start()
    thread.join()
    assert asked == [3, 4, 3]
    memo.forget()
    assert recall(3) == 6 and asked == [3, 4, 3, 3]


def test_functions_have_memos_of_their_own() -> None:
    single, double = memo.remembered(lambda x: x), memo.remembered(lambda x: 2 * x)
    assert [single(3), double(3), single(3), double(3)] == [3, 6, 3, 6]


def test_a_memo_by_identity_starts_again_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "MAX_REMEMBERED", 2)
    asked: list[object] = []
    recall = memo.remembered_by_identity(lambda thing: asked.append(thing) or len(asked))
    things = [[1], [1], [1]]
    assert [recall(things[0]), recall(things[1]), recall(things[0]), recall(things[1])] == [1, 2, 1, 2]
    assert recall(things[2]) == 3 and recall(things[2]) == 3
    assert recall(things[0]) == 4 and len(asked) == 4
