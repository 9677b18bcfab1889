"""Checks the transfers between islands in a plan. Each has one sender and one receiver that name each other, and
carries one type of array. `check.py` calls it. Pure functions.

A channel is the number of one transfer from one island to another, in one function. The runtime relies on these rules.
"""

from collections.abc import Iterator

from pathways.dialect.plan.instructions import Recv, Send
from pathways.dialect.plan.nouns import Plan, Stream


def channel_problems(plan: Plan) -> Iterator[tuple[str, str]]:
    """Finds problems in the channels of one function, whose slots are known to exist."""
    sends: dict[int, tuple[Stream, Send]] = {}
    recvs: dict[int, tuple[Stream, Recv]] = {}
    for stream in plan.streams:
        for i in stream.instructions:
            if isinstance(i, Send | Recv):
                if i.channel in (sends if isinstance(i, Send) else recvs):
                    yield f"channel {i.channel} with two sends or two receives", "one send and one receive a channel"
                if isinstance(i, Send):
                    sends[i.channel] = stream, i
                else:
                    recvs[i.channel] = stream, i
    if odd := sorted(sends.keys() ^ recvs.keys()):
        yield f"channels without both a send and a receive: {odd}", "one send and one receive a channel"
        return
    for channel, (here, send) in sends.items():
        there, recv = recvs[channel]
        if (send.to, recv.source) != (there.island, here.island) or here is there:
            have = f"channel {channel} from {here.island} to {send.to}, received on {there.island} from {recv.source}"
            yield have, "ends that name each other, on two islands"
        sent, got = here.kind_of[send.slot].type, there.kind_of[recv.slot].type
        if sent != got:
            yield f"channel {channel} sends {sent}, receives {got}", "equal types"
