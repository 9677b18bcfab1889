"""Losses of every kind, with the numbers that say what each is over microbatches."""
