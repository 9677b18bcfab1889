"""The command `pwc`: one file a command, thin."""
