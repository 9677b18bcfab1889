"""Data types that compiler and runtime share: ops, topology, shardings, plans, diagnostics."""
