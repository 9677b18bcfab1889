"""Limits how far a host may run ahead of other hosts in a loop.

plan/part.py counts memory with this limit. The controller's relay and the clients hold hosts back by it.
"""

AHEAD = 1
"""The most loop iterations that a host may be ahead of others: the values it offers them stay in memory until taken."""
