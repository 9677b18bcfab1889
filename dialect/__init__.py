"""Defines the data that compiler and runtime share: the `pw` ops, topologies, shardings, plans and errors. Neither of
them imports the other; they meet only here.
"""
