"""The command `pwc`: one thin module for each command. Logic belongs into `pathways.api` and below."""

from pathways.runtime import interrupts

interrupts.install()  # first of all: a Ctrl-C could otherwise be lost in imports, tracing or compilation
