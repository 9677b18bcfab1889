"""The public functions and classes. Only this package uses both the compiler and the runtime."""
