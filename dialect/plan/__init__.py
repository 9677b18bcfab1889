"""The plan that the compiler writes and the runtime loads: its nouns, its file, and the rules that it is checked by."""
