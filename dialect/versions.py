"""The versions of pathways, jax and jaxlib, read from package metadata without importing any of them."""

from importlib.metadata import version

VERSION = "0.2.0"
WRITER = {"pathways": VERSION, "jax": version("jax"), "jaxlib": version("jaxlib")}
"""The versions that plan files record as their writer, and that hosts and clients compare when they connect."""
