"""Defines how many iterations of a data-dependent loop a host may run ahead of the slowest host. Memory planning and
the controller of a cluster use this limit.

`plan/part.py` counts memory with this limit, and `runtime/control/relay.py` holds hosts back by it.
"""

AHEAD = 1
"""The most loop iterations that a host may be ahead of others: the values it offers them stay in memory until taken."""
