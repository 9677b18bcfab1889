"""States the versions of pathways, jax and jaxlib. It reads them from package metadata and must not import jax, which
is slow. Plan files and messages between processes contain them.
"""

from importlib.metadata import version

VERSION = "0.2.0"
WRITER = {"pathways": VERSION, "jax": version("jax"), "jaxlib": version("jaxlib")}
"""The versions that plan files record as their writer, and that hosts and clients compare when they connect."""
