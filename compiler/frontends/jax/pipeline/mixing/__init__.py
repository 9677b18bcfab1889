"""Decides what a loss over microbatches means: the loss of the whole batch, exactly, or something else and where."""
