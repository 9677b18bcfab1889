"""The functions and classes that users call. The only code that sees compiler and runtime together."""
