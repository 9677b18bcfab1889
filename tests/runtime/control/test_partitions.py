"""When two islands connect anew, whose hosts are there and do not reach each other."""

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.runtime.control.partitions import MOST_MENDED, Partitions
from pathways.runtime.wire import messages as m


def test_a_run_of_which_no_host_computes_anything_lacks_its_values() -> None:
    said = Partitions().found(m.Missing(7, "a", "30"), "b", [31.0, 15.0])
    assert said is not None and (said.code, said.source, said.target) == ("PWC0924", "a", "b")
    assert said.brief == f"{said.text(said.title)}: {said.text(said.have)}" and "30" in said.brief


def test_values_that_a_host_may_compute_yet_are_waited_for() -> None:
    partitions, message = Partitions(), m.Missing(7, "a", "30")
    assert partitions.found(message, "b", [31.0, 2.0]) is None
    assert partitions.found(message, "b", []) is None
    assert partitions.found(message, "b", [61.0, 32.0]) is not None  # what was not said before is said then


def test_two_islands_connect_anew_once_a_run_whichever_hosts_tell_of_it() -> None:
    partitions, message = Partitions(), m.Missing(7, "a", "30")
    assert partitions.found(message, "b", [31.0]) is not None
    assert partitions.found(message, "b", [32.0]) is None
    assert partitions.found(m.Missing(7, "b", "30"), "a", [32.0]) is None  # nothing comes the other way, either
    assert partitions.found(message, "c", [32.0]) is not None  # another island that they do not come to
    for run in range(8, 8 + MOST_MENDED):
        assert partitions.found(m.Missing(run, "a", "30"), "b", [31.0]) is not None
    assert partitions.found(message, "b", [32.0]) is not None  # so many runs later it is not known any more


def test_each_of_the_two_is_told_of_the_other() -> None:
    partitions = Partitions()
    cause = partitions.found(m.Missing(7, "a", "30"), "b", [31.0])
    assert cause is not None
    told = partitions.mends(cause)
    assert {name: mend.island for name, mend in told.items()} == {"a": "b", "b": "a"}
    assert {read_diagnostic(mend.cause) for mend in told.values()} == {cause}
    first, second = ({mend.anew for mend in each.values()} for each in (told, partitions.mends(cause)))
    assert len(first) == len(second) == 1 and max(first) < min(second)  # one number for both
