"""The nouns that compiler and runtime share: ops, topology, shardings, plans, diagnostics."""
