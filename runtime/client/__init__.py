"""Client side of the runtime: loaded plans, their inputs and results, and suspended arrays."""
