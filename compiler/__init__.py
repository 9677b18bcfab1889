"""Compiles JAX programs to the pw dialect, then to plans. Never imports the runtime."""
