"""The objects of a client: loaded plans, their inputs and results, and suspended arrays."""
