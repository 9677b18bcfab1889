"""Implements the functions and classes that users import as `pathways`. Only this package uses both the compiler and
the runtime.
"""
