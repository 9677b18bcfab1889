"""Which versions of what this is, found without importing any of it."""

from importlib.metadata import version

VERSION = "0.1.0"
WRITER = {"pathways": VERSION, "jax": version("jax"), "jaxlib": version("jaxlib")}
"""What writes plans, and runs them."""
