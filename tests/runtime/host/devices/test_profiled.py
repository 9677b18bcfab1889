"""Tests which launch a device worked on at which time, as found in XLA profiles of CPUs and GPUs."""

from types import SimpleNamespace
from typing import Any

from pathways.runtime.host.devices.profiled import launch_spans, read_events

ANCHOR = "anchor"


def plane(name: str, *lines: list[tuple[float, float, str, dict[str, Any]]]) -> Any:
    """Builds a plane as XLA's reader returns it; an event is its begin, end, name and stats."""
    made = [
        [SimpleNamespace(name=n, start_ns=b, end_ns=e, stats=tuple(stats.items())) for b, e, n, stats in events]
        for events in lines
    ]
    return SimpleNamespace(name=name, lines=[SimpleNamespace(name="", events=events) for events in made])


def spans(*planes: Any) -> dict[tuple[int, int], tuple[float, float]]:
    return launch_spans(read_events(planes, ANCHOR))


def kernel(begin: float, end: float, call: int) -> tuple[float, float, str, dict[str, Any]]:
    return begin, end, "fusion", {"correlation_id": call, "hlo_op": "fusion"}


def test_cpu_events_state_their_launch_and_device() -> None:
    said = {"run_id": 7, "device_ordinal": 1}
    first, second = (10.0, 20.0, "Execute", said), (30.0, 45.0, "Execute", said)
    assert spans(plane("/host:CPU", [first], [second, (0.0, 99.0, "other", {})])) == {(7, 1): (10.0, 45.0)}


def test_gpu_kernels_belong_to_the_execution_that_called_the_driver() -> None:
    """With an H100 and jax 0.11, driver calls are in the thread of the execution and do not name their launch."""
    host = plane(
        "/host:CPU",
        [
            (0.0, 1.0, ANCHOR, {}),
            (10.0, 50.0, "PjRtCApiLoadedExecutable::Execute", {"_ct": 14, "_c": 0}),
            (12.0, 48.0, "CommonPjRtLoadedExecutable::Execute (jit_f)", {"run_id": 3, "_pt": 5, "_p": 3}),
            (20.0, 22.0, "cuLaunchKernel", {"correlation_id": 100}),
            (30.0, 31.0, "cuGraphLaunch (CudaGraph:6)", {"correlation_id": 101}),
            (60.0, 80.0, "CommonPjRtLoadedExecutable::Execute (jit_g)", {"run_id": 4, "_pt": 5, "_p": 4}),
            (61.0, 62.0, "cuLaunchKernel", {"correlation_id": 102}),
            (90.0, 91.0, "cuMemcpyAsync", {"correlation_id": 103}),
        ],
        [(21.0, 22.0, "cuMemcpyAsync", {"correlation_id": 104})],
    )
    device = plane(
        "/device:GPU:2",
        [kernel(25.0, 40.0, 100), kernel(40.0, 55.0, 101), kernel(55.0, 58.0, 101), kernel(70.0, 75.0, 102)],
        [kernel(92.0, 93.0, 103), kernel(23.0, 24.0, 104), (0.0, 5.0, "before the profile", {"hlo_op": "fusion"})],
    )
    assert spans(host, device) == {(3, 2): (25.0, 58.0), (4, 2): (70.0, 75.0)}
    assert spans(device, host) == spans(host, device)


def test_work_handed_to_other_threads_belongs_to_its_execution() -> None:
    """XLA uses one thread per device, and marks each with the ids of its execution."""
    host = plane(
        "/host:CPU",
        [(10.0, 50.0, "Execute", {"run_id": 9, "_pt": 5, "_p": 1234})],
        [(15.0, 40.0, "[0] Execute", {"_ct": 5, "_c": 1234}), (20.0, 21.0, "cuLaunchKernel", {"correlation_id": 1})],
        [(15.0, 40.0, "[1] Execute", {"_ct": 5, "_c": 1234}), (20.0, 21.0, "cuLaunchKernel", {"correlation_id": 2})],
        [(15.0, 40.0, "another's", {"_ct": 14, "_c": 1234}), (20.0, 21.0, "cuLaunchKernel", {"correlation_id": 3})],
    )
    devices = [plane(f"/device:GPU:{n}", [kernel(30.0 + n, 40.0, n + 1)]) for n in range(3)]
    assert spans(host, *devices) == {(9, 0): (30.0, 40.0), (9, 1): (31.0, 40.0)}
