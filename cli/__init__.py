"""The command `pwc`: one file a command, thin."""

from pathways.runtime import interrupts

interrupts.install()  # first of all: to import, to trace and to compile can drop a Ctrl-C, too
