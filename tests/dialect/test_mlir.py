"""Messages show the begin of an op. A stored module is in the oldest version that has its ops."""

import jax.extend.mlir
import pytest

from pathways.dialect.jax_api import JaxRuntimeError
from pathways.dialect.mlir import MAX_REMEMBERED_BYTES, portable, short_text


def test_only_a_long_op_is_cut_in_a_message() -> None:
    assert [short_text("x" * length) for length in (0, 399, 400)] == ["", "x" * 399, "x" * 400]
    assert short_text("x" * 401) == short_text("x" * 4000) == "x" * 400 + "..."


@pytest.mark.parametrize("lacking", [0, 1, 2, 3])
def test_a_module_is_stored_in_the_oldest_version_that_has_its_ops(
    lacking: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replaces jaxlib's writer, because each jaxlib has other versions. `lacking` versions have not all ops."""
    asked: list[str] = []

    def serialize(_: bytes, version: str, *__: bool) -> bytes:
        asked.append(version)
        if len(asked) <= lacking:
            raise JaxRuntimeError(f"{version} lacks an op")
        return version.encode()

    monkeypatch.setattr(jax.extend.mlir, "serialize_portable_artifact", serialize)
    assert portable(bytes(MAX_REMEMBERED_BYTES + 1)) == asked[-1].encode() and len(asked) == lacking + 1
    numbers = [tuple(map(int, version.split("."))) for version in asked]
    assert numbers == sorted(numbers)
