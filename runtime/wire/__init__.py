"""Defines the messages between the processes of a cluster, and the connections that carry them: Unix sockets on one
machine, TLS between machines.
"""
