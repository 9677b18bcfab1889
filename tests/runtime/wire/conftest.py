"""Fixtures: the members of a cluster, and a listener that admits its hosts."""

from collections.abc import Iterator

import pytest
from support.members import Door, Members


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Members:
    return Members(tmp_path_factory.mktemp("members"))


@pytest.fixture
def door(members: Members) -> Iterator[Door]:
    with Door(members) as door:
        yield door
