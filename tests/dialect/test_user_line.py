"""The user's line is found among frames of this package, of JAX and of Python's own."""

import json
import sysconfig
from pathlib import Path

import jax
import pytest

import pathways
from pathways.dialect.diagnostics import Where
from pathways.dialect.user_line import caller, innermost_users, is_users, on_behalf_of, where_of_exception

STANDARD, LIBRARIES = sysconfig.get_path("stdlib"), f"{sysconfig.get_path('stdlib')}/site-packages"
OWN = Path(pathways.__file__).parent
MINE, THEIRS = Where("/home/me/model.py", 3), Where(f"{LIBRARIES}/flax/module.py", 7)


@pytest.mark.parametrize(
    ("file", "users"),
    [
        ("/home/me/model.py", True),
        ("<stdin>", True),
        (f"{LIBRARIES}/flax/module.py", True),
        (f"{STANDARD}/json/decoder.py", False),
        (json.__file__, False),
        ("<frozen importlib._bootstrap>", False),
        (f"{Path(jax.__file__).parent}/_src/pjit.py", False),
        (f"{OWN}/api/program.py", False),
        (f"{OWN.resolve().parent}/dialect/mlir.py", False),
        ("/home/me/.venv/bin/pwc", False),
        ("/home/me/pwc.py", True),
    ],
)
def test_files_of_this_package_of_jax_and_of_python_are_not_the_users(file: str, users: bool) -> None:
    assert is_users(file) is users


def test_a_line_of_a_library_counts_only_where_there_is_no_other() -> None:
    standard, other = Where(f"{STANDARD}/json/decoder.py", 1), Where("/home/me/main.py", 5)
    assert innermost_users([standard, THEIRS, MINE, other]) == MINE
    second = Where(f"{LIBRARIES}/haiku/base.py", 9)
    assert innermost_users([standard, THEIRS, second]) == THEIRS
    assert innermost_users([standard]) is None and innermost_users([]) is None


def test_the_caller_is_this_line_or_the_one_that_a_thread_works_for() -> None:
    found = caller()
    assert found is not None and found.file == __file__
    assert found.function == test_the_caller_is_this_line_or_the_one_that_a_thread_works_for.__name__
    with on_behalf_of(MINE):
        assert caller() == MINE
        with on_behalf_of(None):
            assert caller() != MINE
        assert caller() == MINE
    with pytest.raises(KeyError), on_behalf_of(MINE):
        raise KeyError
    again = caller()
    assert again is not None and again.file == __file__


def test_an_error_comes_from_the_innermost_line_of_the_user() -> None:
    def fails() -> None:
        json.loads("{")

    with pytest.raises(ValueError) as caught:
        fails()
    found = where_of_exception(caught.value)
    assert found is not None and (found.file, found.function) == (__file__, "fails")
    assert "json.loads" in found.source() and where_of_exception(ValueError()) is None
