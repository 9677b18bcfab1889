"""Models of libraries, cut into stages over slices: `build(pins)` gives the program and the same in plain JAX."""
