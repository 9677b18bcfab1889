"""Defines the compiler's IR. It has the ops of the MLIR dialect `pw`, functions that read and write programs, and the
rules that IR must obey in each phase.
"""
