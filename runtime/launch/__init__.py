"""Starts the processes of a cluster (controller and hosts), on this machine or through Ray, and connects to clusters
that run already.
"""
