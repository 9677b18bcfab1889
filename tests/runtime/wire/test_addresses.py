"""Addresses are parsed as they were formatted, and other texts are no addresses."""

import pytest

from pathways.runtime.wire.addresses import both, path_of, port_of, read_address, show_address


@pytest.mark.parametrize("address", [("127.0.0.1", 7000), ("::1", 0), ("machine-1.example", 65535)])
def test_a_formatted_address_is_parsed_back(address: tuple[str, int]) -> None:
    assert read_address(show_address(address)) == address
    for path in ("", "/run/a b/127.0.0.1:1/island0"):
        said = both(address, path)
        assert (port_of(said), path_of(said)) == (address, path)


@pytest.mark.parametrize(
    "text", ["", "default", "/tmp/c", "./a:1", "host:", ":1", "host:65536", "a b:1", "::1:7", "h:1 "]
)
def test_a_text_that_is_no_address_is_parsed_as_none(text: str) -> None:
    assert read_address(text) is None


def test_a_unix_socket_alone_has_no_port() -> None:
    for path in ("/tmp/a b:1", "nowhere", ""):
        assert (port_of(both(None, path)), path_of(both(None, path))) == (None, path)
