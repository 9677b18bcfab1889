"""How far hosts may be ahead of one another: memory is counted by it, and they are held back by it."""

AHEAD = 1
"""So many turns of a loop may a host be ahead of others: what it offers them stays until they come."""
