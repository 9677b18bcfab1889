"""Decides if a loss that is computed microbatch by microbatch equals the loss of the whole batch. If not, it finds the
equations that mix examples, such as a batch norm. `whole_batch.py` calls this package.
"""
