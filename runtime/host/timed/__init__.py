"""Hosts whose devices compute nothing: each call occupies them for its predicted time. See README."""
