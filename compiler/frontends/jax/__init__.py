"""The JAX front end: turns a Python function over virtual devices into a module of phase `trace`."""
