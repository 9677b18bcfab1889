"""Decides if a loss over microbatches equals the loss of the whole batch, and finds the equations that prevent it."""
