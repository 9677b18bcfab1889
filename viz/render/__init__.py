"""Writes pictures of programs to files, with one module for each file format."""
