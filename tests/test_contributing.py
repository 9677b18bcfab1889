"""Each thing that CONTRIBUTING says how to add is added to a copy of the tree, in the files that it names, and used."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.processes import ROOT

NEW = f"PWC{999:04}"
FOLDERS = ("cli", "compiler", "dialect", "runtime", "viz", "pathways")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree, to which all that is tried is added."""
    made = tmp_path_factory.mktemp("tree")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, made / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return made


def add(tree: Path, files: Mapping[str, str | tuple[str, str]]) -> None:
    """Writes new files, and replaces a text in those that are there."""
    for name, change in files.items():
        path = tree / name
        if isinstance(change, str):
            assert not path.exists()
            path.write_text(change)
        else:
            text = path.read_text()
            assert text.count(change[0]) == 1, f"{change[0]} in {name}"
            line = "from importlib import import_module\n" if "import_module" in change[1] else ""
            path.write_text(_with_import(text, line).replace(*change))


def _with_import(text: str, line: str) -> str:
    """Puts an import before the first one of a module."""
    return text.replace("\nfrom ", f"\n{line}from ", 1)


CASES: Mapping[str, tuple[Mapping[str, str | tuple[str, str]], str, str]] = {
    "scheduling policy of islands": (
        {
            "runtime/control/scheduling/last.py": (
                "from pathways.runtime.control.scheduling.fifo import Fifo\n\n\n"
                "class Last(Fifo):\n    name = 'last'\n\n"
                "    def rank(self, request):\n        return 0.0, -request.number\n"
            ),
            "runtime/control/scheduling/__init__.py": (
                '{"fifo": Fifo,',
                '{"last": import_module("pathways.runtime.control.scheduling.last").Last, "fifo": Fifo,',
            ),
        },
        "from pathways.runtime.control.scheduling.find_policy import find_scheduling_policy as find\n"
        "print(find('last').name)",
        "last",
    ),
    "schedule": (
        {
            "compiler/schedule/own.py": (
                "from pathways.compiler.schedule.gpipe import gpipe\n\n\n"
                "def own(pipeline):\n    return gpipe(pipeline)\n"
            ),
            "compiler/schedule/__init__.py": (
                '    "gpipe": gpipe,\n',
                '    "gpipe": gpipe,\n    "own": import_module("pathways.compiler.schedule.own").own,\n',
            ),
        },
        "from pathways.compiler.schedule import SCHEDULES; print(SCHEDULES['own'].__name__)",
        "own",
    ),
    "placement": (
        {
            "compiler/placement/first.py": (
                "from pathways.compiler.placement.spread import spread\n\n\n"
                "def first(graph, topology):\n    return spread(graph, topology)\n"
            ),
            "compiler/placement/find.py": (
                '    "spread": spread,\n',
                '    "spread": spread,\n    "first": import_module("pathways.compiler.placement.first").first,\n',
            ),
        },
        "from pathways.compiler.placement.find import POLICIES; print(POLICIES['first'].__name__)",
        "first",
    ),
    "message between processes": (
        {
            "runtime/wire/messages.py": (
                "class UnloadPlan(Message, frozen=True):",
                'class Nudge(Message, frozen=True):\n    """Does nothing."""\n\n    request: Int\n    blob: bytes\n\n\n'
                "class UnloadPlan(Message, frozen=True):",
            )
        },
        "from pathways.runtime.wire import messages as m\n"
        "from pathways.runtime.wire.encoding import frame_bytes, read_frames\n"
        "(said,) = read_frames(frame_bytes(m.Nudge(7, b'abc')), (m.Nudge,)); print(said.request, said.blob)",
        "7 b'abc'",
    ),
    "state, or event of one": (
        {
            "runtime/states.py": (
                '        "open": {"fill": "full", "end": "ended"},\n',
                '        "open": {"fill": "full", "end": "ended", "rest": "resting"},\n'
                '        "resting": {"end": "ended"},\n',
            )
        },
        "from pathways.runtime.states import PEER, Life\n"
        "life = Life(PEER); life.turn('rest'); life.turn('end'); print(life.state)",
        "ended",
    ),
    "command": (
        {
            "cli/hello.py": (
                "import click\n\n\n@click.command()\ndef hello():\n    '''Says hello.'''\n    click.echo('hello')\n"
            ),
            "cli/main.py": ('    "why": "why:why",\n', '    "why": "why:why",\n    "hello": "hello:hello",\n'),
        },
        "from pathways.cli.main import main; main(['hello'], standalone_mode=False)",
        "hello",
    ),
    "error": (
        {
            "runtime/wire/errors.py": (
                "@dataclass(frozen=True)\nclass RayLacks(Diagnostic):",
                '@dataclass(frozen=True)\nclass Tired(Diagnostic):\n    code: ClassVar[str] = "' + NEW + '"\n'
                '    title: ClassVar[str] = "it is tired"\n    have: ClassVar[str] = "{hours} h"\n'
                '    need: ClassVar[str] = "sleep"\n    hint: ClassVar[str] = "wait"\n    hours: str\n\n\n'
                "@dataclass(frozen=True)\nclass RayLacks(Diagnostic):",
            )
        },
        "from pathways.cli.main import main; main(['explain', '" + NEW + "'], standalone_mode=False)",
        "it is tired",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_contributing_says_is_enough(name: str, tree: Path) -> None:
    files, code, said = CASES[name]
    rows = (ROOT / "CONTRIBUTING.md").read_text().splitlines()
    (text,) = (line for line in rows if line.startswith(f"| {name} |"))
    for path in files:  # each file is named, or its folder is
        folder, _, file = path.rpartition("/")
        assert file in text or folder in text, path
    add(tree, files)
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env={"PYTHONPATH": str(tree), "PATH": ""}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0 and said in done.stdout, done.stderr
