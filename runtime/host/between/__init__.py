"""Moves values between hosts: the transports, and the choice of a transport for each value."""
