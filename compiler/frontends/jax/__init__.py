"""From a Python function over virtual devices to a module of phase `trace`."""
