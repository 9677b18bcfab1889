"""The process of all hosts of a timed island: `python -m pathways.runtime.host.timed.serve`. `launch/timed_hosts.py`
starts it.

It has no PJRT. The modules of a host find `timed/pjrt.py` under the name of the module that wraps PJRT.
"""

import importlib
import sys

from pathways.runtime.host.timed import pjrt


def serve_timed() -> None:
    sys.modules["pathways.runtime.host.devices.pjrt"] = pjrt  # before any module of a host is imported
    importlib.import_module("pathways.runtime.host.timed.hosts").serve_island()


if __name__ == "__main__":
    serve_timed()
