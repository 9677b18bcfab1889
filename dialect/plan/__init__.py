"""Defines the plan, a compiled program as data, which the compiler writes and the runtime loads. The package has its
data types, its file format, and its validity checks.
"""
