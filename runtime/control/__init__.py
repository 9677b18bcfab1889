"""Decides which run may enqueue its work on which island, and when, so that many clients can share devices. It has the
scheduler and the controller of a cluster. It uses neither JAX nor devices.
"""
