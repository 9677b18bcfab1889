"""Tests what a client may send to an island with a run, and after its runs."""

import pytest

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.control.client_parcels import check_after_run, sent_parcels
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.client_messages import WEIGHT
from pathways.runtime.wire.encoding import frame_bytes, pack_parcels, read_frames
from pathways.runtime.wire.errors import HostLost
from pathways.runtime.wire.ids import MAX_RESULTS, first_id

MINE = first_id(1)
LAST = first_id(2) - 1 - MAX_RESULTS
"""The largest first id of a run's results of client 1: as many ids follow as a run may have."""


def run(*, transfers: int = 0, results: int = MINE, wanted: int = 0) -> m.RunPlan:
    return m.RunPlan(MINE, MINE, transfers, results, (), wanted)


FREED, PUT = m.FreeArrays((MINE,)), m.PutArray(MINE + 1, MINE, 0, b"x")
CAUSE = write_diagnostic(HostLost(island="x", reason="a test"))


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([run()], ""),
        ([run(results=LAST)], ""),
        ([PUT, FREED, m.CopyArray(MINE, MINE + 2), m.UnloadPlan(MINE), m.PutPoison(MINE, CAUSE), run()], ""),
        ([run(results=LAST + 1)], "PWC0916"),
        ([run(transfers=-1)], "PWC0911"),
        ([run(wanted=4)], "PWC0911"),
        ([m.RunPlan(MINE, MINE + 1, 0, MINE, ())], "PWC0911"),
        ([m.RunPlan(MINE + 1, MINE, 0, MINE, ())], "PWC0911"),
        ([m.RunPlan(MINE, MINE, 0, MINE, (first_id(2),))], "PWC0916"),
        ([m.FreeArrays((first_id(2),)), run()], "PWC0916"),
        ([m.PutArray(first_id(2), MINE, 0, b""), run()], "PWC0916"),
        ([m.PutPoison(MINE, "no diagnostic"), run()], "PWC0911"),
        ([m.FetchArray(1, MINE, 0), run()], "PWC0911"),
        ([run(), FREED], "PWC0911"),
        ([m.PutArray(MINE, MINE, 0, bytes(40_000)), m.PutArray(MINE, MINE, 1, bytes(40_000)), run()], "PWC0911"),
        ([*[m.FreeArrays((MINE,) * 100_000)] * 3, run()], "PWC0911"),
        ([m.FreeArrays((MINE,) * 120_000), run()], "PWC0911"),
        ([m.RunPlan(MINE, MINE, 0, MINE, (MINE,) * 120_000)], "PWC0911"),
        ([m.Forget(1, 2), run()], "PWC0911"),
        ([run(), run()], "PWC0911"),
        ([FREED], "PWC0911"),
        ([], "PWC0911"),
    ],
)
def test_a_parcel_is_the_run_that_it_is_submitted_as(messages: list[m.Message], code: str) -> None:
    told = m.Submit(MINE, MINE, 0, WEIGHT, (), pack_parcels([(2, 3, messages)]))
    if code:
        with pytest.raises(PathwaysError) as caught:
            sent_parcels(told, 1, 77)
        assert caught.value.code == code
        return
    parcels, results, unloaded = sent_parcels(told, 1, 77)
    parcel = parcels.pop(2)
    assert not parcels
    *before, sent = messages
    assert isinstance(sent, m.RunPlan) and results == sent.results
    assert unloaded == [MINE] * any(isinstance(message, m.UnloadPlan) for message in before)
    assert read_frames(parcel.before) == before and parcel.epoch == 3
    assert read_frames(parcel.run) == [m.RunPlan(MINE, MINE, 77, results, ())]


def test_each_island_gets_its_own_messages_if_others_get_equal_ones() -> None:
    put = m.PutArray(MINE + 1, MINE, 0, b"x")
    told = m.Submit(MINE, MINE, 0, WEIGHT, (), pack_parcels([(0, 5, [run()]), (1, 6, [put, run()]), (2, 7, [run()])]))
    parcels, _, _ = sent_parcels(told, 1, 77)
    assert [(island, p.epoch, read_frames(p.before)) for island, p in parcels.items()] == [
        (0, 5, []),
        (1, 6, [put]),
        (2, 7, []),
    ]
    assert {p.run for p in parcels.values()} == {frame_bytes(run(transfers=77))}


def test_a_message_without_content_may_follow_runs() -> None:
    empty = frame_bytes(m.FreeArrays(()))
    assert check_after_run(empty, 1) == m.FreeArrays(())
