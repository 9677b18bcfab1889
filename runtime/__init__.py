"""Executes plans and returns results. Called by `pathways.api`; never imports the compiler."""
