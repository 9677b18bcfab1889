"""JAX programs -> the pw dialect -> plans. Never imports the runtime."""
