"""Uses the devices of this process through PJRT: creates and assigns devices, compiles code, moves arrays, and limits
how many computations are in flight.
"""
