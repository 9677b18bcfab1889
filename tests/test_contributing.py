"""Each thing that CONTRIBUTING says how to add is added to a copy of the tree, in the files that it names, and used."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import TypeAlias

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


Change: TypeAlias = str | tuple[str, str] | list[tuple[str, str]]
"""The text of a new file, or texts that replace others in a file that is there."""


def add(tree: Path, files: Mapping[str, Change]) -> None:
    """Writes new files, and replaces texts in those that are there."""
    for name, change in files.items():
        path = tree / name
        if isinstance(change, str):
            assert not path.exists()
            path.parent.mkdir(exist_ok=True)
            path.write_text(change)
            continue
        text = path.read_text()
        for before, after in [change] if isinstance(change, tuple) else change:
            assert text.count(before) == 1, f"{before} in {name}"
            text = text.replace(before, after)
            if "import_module" in after and "import import_module" not in text:
                text = text.replace("\nfrom ", "\nfrom importlib import import_module\nfrom ", 1)
        path.write_text(text)


def imported(module: str, name: str) -> str:
    """Writes an expression for a name of a module."""
    return f'import_module("pathways.{module}").{name}'


CASES: Mapping[str, tuple[Mapping[str, Change], str, str]] = {
    "pass": (
        {
            "compiler/passes/count_calls.py": (
                "from typing import ClassVar\n\n"
                "from pathways.compiler.passes.base import Pass, Session\n"
                "from pathways.dialect.ir.program import ProgramIR\n"
                "from pathways.dialect.phases import Phase\n\n\n"
                "class CountCalls(Pass):\n"
                '    """Prints how many calls there are.\n\n    Requires: phase schedule.\n    """\n\n'
                '    name: ClassVar[str] = "count-calls"\n'
                "    requires: ClassVar[Phase] = Phase.SCHEDULE\n"
                "    ensures: ClassVar[Phase] = Phase.SCHEDULE\n\n"
                "    def apply(self, program: ProgramIR, session: Session) -> None:\n"
                "        print(len(program.flow.nodes), 'nodes')\n"
            ),
            "compiler/pass_manager.py": [
                (
                    "        MergeCalls,\n        PlanIslands,",
                    "        MergeCalls,\n        "
                    + imported("compiler.passes.count_calls", "CountCalls")
                    + ",\n        PlanIslands,",
                ),
                (
                    "        PlanIslands(enforce=options.enforce),",
                    "        "
                    + imported("compiler.passes.count_calls", "CountCalls")
                    + "(),\n        PlanIslands(enforce=options.enforce),",
                ),
            ],
        },
        "import numpy as np, pathways as pw\n"
        "pw.program(lambda x: x + 1).lower(np.ones(2)).compile()\n"
        "from pathways.cli.main import main; main(['passes'], standalone_mode=False)",
        "nodes",
    ),
    "op": (
        {
            "dialect/ir/pw.py": [
                (
                    "class BranchOp(PwOp):",
                    'class NoteOp(PwOp):\n    """Says something."""\n\n    OPERATION_NAME = "pw.note"\n'
                    '    text = Field(STRING, "what it says")\n\n\nclass BranchOp(PwOp):',
                ),
                ("    PlanOp,\n    *STREAM_OPS,\n)", "    PlanOp,\n    *STREAM_OPS,\n    NoteOp,\n)"),
            ]
        },
        "from pathways.dialect.ir import pw\nfrom pathways.dialect.mlir import parse_text\n"
        "module = parse_text('\"pw.note\"() {text = \"hello\"} : () -> ()', 'a test')\n"
        "(op,) = module.body.operations; print(op.text)",
        "hello",
    ),
    "instruction": (
        {
            "dialect/plan/instructions.py": [
                (
                    "@dataclass(frozen=True)\nclass Free:",
                    '@dataclass(frozen=True)\nclass Say:\n    """Print a text."""\n\n    KIND: ClassVar[str] = "say"\n'
                    '    COUNTED: ClassVar[tuple[str, str]] = ("saying", "sayings")\n    step: int\n    text: str\n\n'
                    "    @property\n    def effects(self) -> Effects:\n        return Effects((), (), ())\n\n\n"
                    "@dataclass(frozen=True)\nclass Free:",
                ),
                ("Copy | Free | Branch", "Copy | Free | Branch | Say"),
                ("Copy, Free, Branch)", "Copy, Free, Branch, Say)"),
            ],
            "dialect/ir/pw.py": [
                (
                    "class FreeOp(PwOp):",
                    'class SayOp(PwOp):\n    """Print a text."""\n\n    OPERATION_NAME = "pw.say"\n'
                    '    step = Field(INTEGER, "its position in the order of the program")\n'
                    '    text = Field(STRING, "what is printed")\n\n\nclass FreeOp(PwOp):',
                ),
                ("BranchOp, FreeOp)", "BranchOp, FreeOp, SayOp)"),
            ],
            "dialect/plan/plan.proto": [
                ("message Free {", "message Say { int64 step = 1; string text = 2; }\nmessage Free {"),
                ("Branch branch = 6; }", "Branch branch = 6; Say say = 7; }"),
            ],
            "compiler/buffers/streams.py": [
                (
                    "import Branch, Copy, Free, Instruction, Recv, Run, Send\n",
                    "import Branch, Copy, Free, Instruction, Recv, Run, Say, Send\n",
                ),
                (
                    "        if dead:\n            draft.instructions.append(Free(",
                    "        if dead:\n            draft.instructions.append(Say(step, 'something was freed'))\n"
                    "            draft.instructions.append(Free(",
                ),
            ],
            "runtime/host/load/steps.py": [
                (
                    "import Branch, Copy, Free, Instruction, Recv, Run, Send\n",
                    "import Branch, Copy, Free, Instruction, Recv, Run, Say, Send\n",
                ),
                (
                    "            case Free():\n",
                    "            case Say():\n                return lambda frame: print(instruction.text)\n"
                    "            case Free():\n",
                ),
            ],
            "cli/inspect.py": [
                (
                    "import Branch, Copy, Free, Instruction, Recv, Run, Send\n",
                    "import Branch, Copy, Free, Instruction, Recv, Run, Say, Send\n",
                ),
                (
                    "        case Free():\n",
                    "        case Say():\n            return [at, f'say {instruction.text}', '']\n"
                    "        case Free():\n",
                ),
            ],
        },
        "from pathlib import Path\nfrom grpc_tools import protoc\nfrom pathways.dialect import platforms\n"
        "at = str(Path(platforms.__file__).parent / 'plan')\n"
        "assert not protoc.main(['', f'-I{at}', f'--descriptor_set_out={at}/plan.binpb', f'{at}/plan.proto'])\n"
        "import numpy as np, pathways as pw, jax\n"
        "one, two = jax.jit(lambda x: x * 2), jax.jit(lambda x: x + 1)\n"
        "plan = pw.program(lambda x: two(one(x))).lower(np.ones(2)).compile(merge=False)\n"
        "plan.save('PLAN'); from pathways.cli.main import main\n"
        "main(['inspect', 'PLAN', '--schedule'], standalone_mode=False); print(np.asarray(plan(np.ones(2))))",
        "something was freed\n[3. 3.]",
    ),
    "transport between hosts": (
        {
            "runtime/host/between/noted.py": (
                "from pathways.runtime.host.between.eager_values import EagerPlane\n\n\n"
                "class NotedPlane(EagerPlane):\n"
                "    def offer(self, number, arrays, devices):\n"
                "        print('noted', number)\n"
                "        return super().offer(number, arrays, devices)\n"
            ),
            "runtime/host/between/link.py": [
                ("return EAGER if values.bytes", "return 2 if values.bytes == 24 else EAGER if values.bytes"),
                (
                    "self._pulled)\n",
                    "self._pulled, " + imported("runtime.host.between.noted", "NotedPlane") + "(sender))\n",
                ),
                (
                    "PulledSource(self._pulled, inbox.where(PULLED))))\n",
                    "PulledSource(self._pulled, inbox.where(PULLED)), EagerSource(inbox)))\n",
                ),
            ],
        },
        "import jax, numpy as np\n"
        "from pathways.dialect.dtypes import ArrayType\n"
        "from pathways.runtime.host.between.data_plane import ArrayGroup\n"
        "from pathways.runtime.host.devices import pjrt\n"
        "from pathways.runtime.host.load.peer_hosts import PeerHosts\n"
        "from pathways.runtime.wire.loop import Loop\n"
        "loop, device = Loop(), jax.devices()[0]; loop.start()\n"
        "a, b = PeerHosts(device, loop, 'a'), PeerHosts(device, loop, 'b'); b.connect_to({'a': a.invite('b')})\n"
        "values = ArrayGroup([ArrayType((6,), 'float32')], [pjrt.on_device(device)])\n"
        "to = a.to('b'); to.offer(to.prepare(values), 7, [jax.device_put(np.ones(6, np.float32))], [device]).send()\n"
        "(came,) = b.sources['a'].fetch(7, values); came.block_until_ready(); print(np.asarray(came.array()))\n"
        "loop.call(loop.end); loop.over.wait(9)",
        "noted 7\n[1. 1. 1. 1. 1. 1.]",
    ),
    "platform": (
        {
            "dialect/platforms.py": (
                '        Platform("tpu", ("tpu",), custom_calls=ON_TPU, ray_resource="TPU"),\n',
                '        Platform("tpu", ("tpu",), custom_calls=ON_TPU, ray_resource="TPU"),\n'
                '        Platform("npu", ("npu",), tried="never", in_flight=4),\n',
            ),
        },
        "from pathways.dialect.platforms import platform_named; print(platform_named('npu').in_flight)",
        "4",
    ),
    "way to start hosts": (
        {
            "runtime/launch/noted_hosts.py": (
                "from pathways.runtime.launch.local_hosts import LocalLauncher\n\n\n"
                "class NotedLauncher(LocalLauncher):\n"
                "    def start(self, island, epoch, tickets):\n"
                "        print('starts', island.name, flush=True)\n"
                "        return super().start(island, epoch, tickets)\n"
            ),
            "runtime/control/serve.py": (
                "        return LocalLauncher(folder,",
                "        return " + imported("runtime.launch.noted_hosts", "NotedLauncher") + "(folder,",
            ),
        },
        "import tempfile, pathlib, pathways as pw, numpy as np\n"
        "from pathways.api.shared_cluster import start_shared\n"
        "from pathways.dialect.topology import parse_topology\n"
        "from pathways.runtime.launch.reach import ask\n"
        "with tempfile.TemporaryDirectory(prefix='pw') as folder:\n"
        "    start_shared(folder + '/c', parse_topology('islands=1,devices=1'), 'stride')\n"
        "    with pw.connect(folder + '/c'):\n"
        "        print(np.asarray(pw.program(lambda x: x + 1)(np.ones(2))))\n"
        "    print(*(path.read_text() for path in pathlib.Path(folder).rglob('*.log')))\n"
        "    ask(folder + '/c', 'stop')",
        "starts island0",
    ),
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
        "life = Life(PEER); life.transition('rest'); life.transition('end'); print(life.state)",
        "ended",
    ),
    "command": (
        {
            "cli/hello.py": (
                "import click\n\n\n@click.command()\ndef hello():\n    '''Says hello.'''\n    click.echo('hello')\n"
            ),
            "cli/main.py": (
                '    "diff": ("diff:diff",',
                '    "hello": ("hello:hello", "Say hello."),\n    "diff": ("diff:diff",',
            ),
        },
        "from pathways.cli.main import main; main(['hello'], standalone_mode=False)",
        "hello",
    ),
    "primitive of JAX, what it does with a batch": (
        {
            "compiler/frontends/jax/pipeline/mixing/elementwise.py": (
                '"erf_inv", "erfc"',
                '"erf_inv", "twice", "erfc"',
            ),
        },
        "import contextlib, io, jax, numpy as np, pathways as pw\n"
        "from jax.extend.core import Primitive\nfrom jax.interpreters import ad, mlir\n"
        "twice = Primitive('twice'); twice.def_abstract_eval(lambda x: x)\ntwice.def_impl(lambda x: x + x)\n"
        "mlir.register_lowering(twice, mlir.lower_fun(lambda x: x + x, multiple_results=False))\n"
        "ad.deflinear(twice, lambda cotangent: [twice.bind(cotangent)])\n"
        "slices = [pw.make_virtual_device_set().add_slice(devices=1)]\n"
        "loss = pw.pipeline(lambda w, x: twice.bind(x * w).sum(), slices, microbatches=2, reduce='sum')\n"
        "said = io.StringIO()\n"
        "with contextlib.redirect_stderr(said):\n"
        "    made = pw.program(jax.value_and_grad(loss))(np.ones(2, np.float32), np.ones((4, 2), np.float32))\n"
        "print(float(made[0]), repr(said.getvalue()))",
        "16.0 ''",
    ),
    "front end": (
        {
            "compiler/frontends/sums/__init__.py": '"""Programs of sums."""\n',
            "compiler/frontends/sums/read.py": (
                "from pathways.compiler.frontends.builder import CalledComputation, ProgramBuilder, SliceSpec\n"
                "from pathways.dialect.diagnostics import Where\n"
                "from pathways.dialect.dtypes import ArrayType\n"
                "from pathways.dialect.ir.program import Argument\n"
                "from pathways.dialect.sharding import MeshSpec\n"
                "from pathways.dialect.trees import LEAF, Tree\n\n"
                "TEXT = '''func.func public @main(%a: tensor<8xf32>) -> tensor<8xf32> {\n"
                "  %c = stablehlo.add %a, %a : tensor<8xf32>\n  return %c : tensor<8xf32>\n}'''\n\n\n"
                "def read():\n"
                "    builder = ProgramBuilder('sum', 'cpu', where=Where('sums.txt', 1))\n"
                "    vector = ArrayType((8,), 'float32')\n"
                "    mesh = builder.mesh(SliceSpec(0, 1, where=Where('sums.txt', 2)), MeshSpec((('x', 1),), (0,)))\n"
                "    main = builder.main([(Argument('a', mesh=mesh), vector)])\n"
                "    (made,) = main.call(CalledComputation('add', TEXT), main.arguments, mesh)\n"
                "    main.returns([made], [Argument('r')])\n"
                "    return builder.finish(Tree('tuple', (LEAF,)), LEAF)\n"
            ),
        },
        "from pathways.compiler.driver import Compilation\n"
        "from pathways.compiler.frontends.sums.read import read\n"
        "from pathways.compiler.passes.base import Session\n"
        "from pathways.dialect.ir.program import ProgramIR\n"
        "from pathways.dialect.topology import parse_topology\n"
        "built = read()\n"
        "made = Compilation(ProgramIR(built.module), built.constants, Session(parse_topology('islands=1,devices=1')))\n"
        "made.advance(); print(made.plan().name)",
        "sum",
    ),
    "form to emit": (
        {
            "compiler/emit/same.py": "def same_module(program, constants):\n    return program.module\n",
            "compiler/emit/forms.py": (
                '"ifrt": ifrt_module}',
                '"ifrt": ifrt_module, "same": ' + imported("compiler.emit.same", "same_module") + "}",
            ),
        },
        "from pathlib import Path\n"
        "Path('model.py').write_text('import pathways as pw\\nimport numpy as np\\n'\n"
        "    'f = pw.program(lambda x: x + 1, example_args=(np.ones(2),))\\n')\n"
        "from pathways.cli.main import main\n"
        "main(['compile', 'model.py', '--emit', 'same'], standalone_mode=False)",
        "pw.program",
    ),
    "kind of picture": (
        {
            "viz/render/title.py": "def title_text(scene):\n    return scene.title\n",
            "viz/picture.py": (
                '    ".txt": _txt,\n',
                '    ".txt": _txt,\n    ".title": ' + imported("viz.render.title", "title_text") + ",\n",
            ),
        },
        "from pathways.viz.picture import Picture\nprint(Picture('a title').save('it.title').read_text())",
        "a title",
    ),
    "name of `pathways`": (
        {
            "pathways/api/twice.py": "def twice(x):\n    '''Doubles a number.'''\n    return 2 * x\n",
            "pathways/__init__.py": (
                '    "status": "pathways.api.process",\n',
                '    "status": "pathways.api.process",\n    "twice": "pathways.api.twice",\n',
            ),
        },
        "import pathways as pw; print(pw.twice(21), 'twice' in dir(pw))",
        "42 True",
    ),
    "error": (
        {
            "runtime/wire/errors.py": (
                "class RayLacks(Diagnostic):",
                'class Tired(Diagnostic):\n    code: ClassVar[str] = "' + NEW + '"\n'
                '    title: ClassVar[str] = "it is tired"\n    have: ClassVar[str] = "{hours} h"\n'
                '    need: ClassVar[str] = "sleep"\n    hint: ClassVar[str] = "wait"\n    hours: str\n\n\n'
                "class RayLacks(Diagnostic):",
            )
        },
        "from pathways.cli.main import main; main(['explain', '" + NEW + "'], standalone_mode=False)",
        "it is tired",
    ),
}


@pytest.mark.long("more rows of one table: 1 to 2 s each", keep=("pass", "placement", "schedule", "op", "front end"))
@pytest.mark.parametrize("name", CASES)
def test_what_contributing_says_is_enough(name: str, tree: Path, tmp_path: Path) -> None:
    files, code, said = CASES[name]
    rows = (ROOT / "CONTRIBUTING.md").read_text().splitlines()
    (text,) = (line for line in rows if line.startswith(f"| {name} |"))
    for path in files:  # each file is named, or a folder that it is in
        folders = [str(folder) for folder in PurePath(path).parents][:-1]
        assert PurePath(path).name in text or any(f"`{folder}/" in text for folder in folders), path
    add(tree, files)
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env={"PYTHONPATH": str(tree), "PATH": ""}, capture_output=True, text=True,
        check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0 and said in done.stdout, done.stderr
