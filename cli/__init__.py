"""The command `pwc`: one file a command, thin."""

from pathways.runtime import interrupts

interrupts.install()  # first of all: imports, tracing and compilation can drop a Ctrl-C, too
