"""All hosts of a run hear the same decisions in the same order, whatever thread says them, and none behind a loss."""

import random
import threading
from collections.abc import Callable
from functools import partial

from pathways.runtime.control.relay import Relay
from pathways.runtime.host.devices.remote_array import Parts
from pathways.runtime.host.run.decisions import Decisions, name_of_turn
from pathways.runtime.host.run.store import Poison
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.decided import CANCELLED, DOOMED, Said, doom
from pathways.runtime.wire.errors import HostLost

GONE = HostLost(island="island0", reason="killed")


class Host:
    def __init__(self) -> None:
        self.heard: list[Said] = []

    def tell(self, message: Said) -> None:
        self.heard.append(message)


LOOP, CHOICE = 1, 2
BRANCHES = {LOOP: ("while", frozenset(("a", "b"))), CHOICE: ("cond", frozenset(("a", "b", "c")))}


def relay_of(run: int = 7) -> tuple[Relay, dict[str, Host]]:
    hosts = {name: Host() for name in ("a", "b", "c")}
    return Relay(run, hosts, BRANCHES), hosts


def turn(name: int, value: int = 1, loop: int = 100) -> m.Decided:
    return m.Decided(7, LOOP, loop, name, value)


def choice(name: int) -> m.Decided:
    return m.Decided(7, CHOICE, 1000 + name, name, 0)


def test_nothing_is_told_before_all_have_heard_of_the_run() -> None:
    relay, hosts = relay_of()
    relay.hear("a", choice(1))
    assert not any(h.heard for h in hosts.values())
    relay.begin()
    relay.hear("a", choice(2))
    assert [h.heard for h in hosts.values()] == [[choice(1), choice(2)]] * 3


def test_nothing_is_told_behind_a_loss() -> None:
    relay, hosts = relay_of()
    relay.doom(GONE)
    relay.hear("a", choice(1))
    relay.doom(GONE)
    relay.begin()
    relay.hear("a", choice(2))
    for host in hosts.values():
        assert [(type(said), said.name) for said in host.heard] == [(m.Undecided, DOOMED)]


def test_who_has_a_part_is_told_and_none_is_far_ahead() -> None:
    relay, hosts = relay_of()
    relay.begin()
    a, b, c = hosts.values()
    relay.hear("a", turn(1))
    relay.hear("a", turn(2))  # held: the other has not come to the first yet
    relay.hear("a", turn(1, loop=200))  # another run of the same loop is one of its own
    assert a.heard == b.heard == [turn(1), turn(1, loop=200)] and not c.heard
    relay.hear("b", m.Reached(7, LOOP, 100))
    assert a.heard[2:] == b.heard[2:] == [turn(2)]
    relay.hear("a", turn(3, value=0))
    assert len(a.heard) == 3
    relay.hear("b", m.Reached(7, LOOP, 100))
    assert a.heard[3:] == b.heard[3:] == [turn(3, value=0)] and not c.heard


def test_nothing_is_kept_of_a_loop_that_is_over() -> None:
    relay, _ = relay_of()
    relay.begin()
    for loop, last in ((100, turn(2, value=0)), (200, m.Undecided(7, LOOP, 200, 2, ""))):
        relay.hear("a", turn(1, loop=loop))
        relay.hear("b", m.Reached(7, LOOP, loop))
        relay.hear("a", last)
        assert relay.loops == 1
        relay.hear("b", m.Reached(7, LOOP, loop))
        assert relay.loops == 0
    relay.hear("b", choice(5))
    for host in ("a", "c"):
        assert relay.loops == 1
        relay.hear(host, m.Reached(7, CHOICE, 1005))
    assert relay.loops == 0


def test_a_run_is_cancelled_where_it_runs() -> None:
    relay, hosts = relay_of()
    relay.begin()
    parts = Parts(relay.cancel)
    ended, running = parts.add(), parts.add()
    ended.end({})
    assert ended.cancel(GONE)
    assert ended.cause(0) is None and running.cause(0) == GONE and running.is_ready()
    assert [[said.name for said in host.heard] for host in hosts.values()] == [[CANCELLED]] * 3
    running.end({})
    assert not running.cancel(GONE)


def test_any_order_of_threads_is_one_order_of_hosts() -> None:
    for seed in range(50):
        relay, hosts = relay_of(seed)
        work = [partial(relay.hear, "a", choice(n)) for n in range(20)]
        work += [relay.begin, partial(relay.doom, GONE)]
        random.Random(seed).shuffle(work)
        threads = [threading.Thread(target=_do, args=(work[k::4],)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        a, b, c = hosts.values()
        assert a.heard == b.heard == c.heard
        assert isinstance(a.heard[-1], m.Undecided)


def _do(work: list[Callable[[], None]]) -> None:
    for each in work:
        each()


def test_a_host_takes_what_it_hears_of_its_runs() -> None:
    said: list[Said | m.Reached] = []
    decisions = Decisions(said.append)
    decisions.hear(turn(1))  # of a run that it does not know
    decisions.begin(7)
    run = decisions.of(7)
    run.say(LOOP, 100, 1, 0)
    run.say(LOOP, 100, 2, Poison(GONE))
    run.reach(LOOP, 100)
    assert not run.is_known(1) and said[2] == m.Reached(7, LOOP, 100)
    for one in said[:2]:
        assert not isinstance(one, m.Reached)
        decisions.hear(one)
    assert run.take(1) == 0
    bad = run.take(2)
    assert isinstance(bad, Poison) and bad.cause == GONE
    decisions.hear(turn(4))
    decisions.hear(doom(7, GONE, cancelled=False))
    assert run.take(4) == 1 and isinstance(run.take(5), Poison)  # what was decided before stays
    assert run.cancelled is None  # loops on this host alone go on
    decisions.hear(doom(7, GONE, cancelled=True))
    assert run.cancelled is not None
    decisions.end(7)
    decisions.hear(turn(6))


def test_names_differ_and_are_numbers_of_the_wire() -> None:
    names = {name_of_turn(outer, step, turn) for outer in (0, 5, 1 << 61) for step in range(20) for turn in range(50)}
    assert len(names) == 3000 and all(0 <= n < 1 << 62 for n in names)
    assert name_of_turn(5, 1, 2) == name_of_turn(5, 1, 2)


def test_a_host_that_has_no_part_decides_nothing() -> None:
    """What a client says of its plan may not be so."""
    relay, hosts = relay_of()
    relay.begin()
    relay.hear("c", turn(1))
    assert not any(host.heard for host in hosts.values()) and not relay.loops
