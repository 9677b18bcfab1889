"""Plans the memory of a program: how long each buffer lives, what it belongs to, and which instructions use it. The
last passes of the compiler call this package.
"""
