"""Topologies by name: the paper's configurations (section 5, table of machines), and hosts of eight GPUs.

The paper states islands, hosts and devices. Memory and flop/s are the vendors' figures for a core of a TPU v3 and for
an H100; the paper states no network rates, so that these are assumptions: one 100 Gbit/s link (12.5 GB/s) a host.
"""

from pathways.dialect.topology import Island, Topology

_HOST_GBPS = 12.5


def _tpu_v3(name: str, hosts: int, devices: int) -> Island:
    return Island(name, devices=devices, hosts=hosts, memory=16 * 10**9, flops=61.5e12, ici_gbps=70.0)


def _h100_host(name: str) -> Island:
    return Island(name, devices=8, memory=80 * 10**9, flops=989e12, ici_gbps=450.0)


PRESETS: dict[str, Topology] = {
    "paper-a": Topology((_tpu_v3("island0", hosts=512, devices=4),), dcn_gbps=_HOST_GBPS),
    "paper-b": Topology((_tpu_v3("island0", hosts=64, devices=8),), dcn_gbps=_HOST_GBPS),
    "paper-c": Topology(tuple(_tpu_v3(f"island{i}", hosts=4, devices=8) for i in range(4)), dcn_gbps=4 * _HOST_GBPS),
    "gpu-host": Topology((_h100_host("island0"),), dcn_gbps=_HOST_GBPS),
    "gpu-hosts-2": Topology((_h100_host("island0"), _h100_host("island1")), dcn_gbps=4 * _HOST_GBPS),
}
"""By the name that `--topology` takes."""
