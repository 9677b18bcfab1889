"""The plan that the compiler writes and the runtime loads: its data types, its file format, and its validity rules."""
