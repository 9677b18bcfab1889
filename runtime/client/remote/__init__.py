"""Implements the client side of a cluster, whose devices belong to host processes: connections to the controller and to
the hosts, and arrays and runs there.
"""
