"""A caller is judged by its certificate, if it has one; a process of this machine has none and needs none."""

import pytest
from support.codes import code_of

from pathways.runtime.wire.credentials import Caller
from pathways.runtime.wire.identity import Identity

HOST, CLIENT = (Caller(member=Identity("demo", role, "pod/1")) for role in ("host", "client"))


@pytest.mark.parametrize(
    ("caller", "name", "is_host"),
    [(HOST, "pod/1", True), (HOST, "pod/0", False), (CLIENT, "pod/1", False), (Caller(5), "pod/1", False)],
)
def test_only_a_host_of_this_name_is_that_host(caller: Caller, name: str, is_host: bool) -> None:
    assert caller.is_host(name) is is_host


@pytest.mark.parametrize(("caller", "allowed"), [(HOST, "host"), (CLIENT, "client"), (Caller(5), "host client")])
def test_a_member_is_refused_in_another_role(caller: Caller, allowed: str) -> None:
    assert code_of(caller.check, "host", "here:1") == ("" if "host" in allowed else "PWC0913")
    assert code_of(caller.check, "client", "here:1") == ("" if "client" in allowed else "PWC0913")


def test_a_caller_is_named_by_its_process_or_its_certificate() -> None:
    assert (str(Caller(5)), str(HOST)) == ("process 5", "host pod/1 of demo")
