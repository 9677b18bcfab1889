"""Sends arrays between host processes, if one plan runs on devices of several. It has two transports, and chooses one
by the size of a value.
"""
