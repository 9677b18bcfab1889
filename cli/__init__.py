"""Implements `pwc`, the command line of this package, with one small module for each command. A module here only parses
options and prints results. All other logic belongs into `pathways.api` and the layers below.
"""

from pathways.runtime import interrupts

interrupts.install()  # first of all: a Ctrl-C could otherwise be lost in imports, tracing or compilation
