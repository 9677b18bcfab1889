"""Starts the processes of hosts and controllers, and connects to clusters."""
