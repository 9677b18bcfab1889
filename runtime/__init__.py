"""Executes plans (compiled programs) on devices and returns the results. `pathways.api` calls it. The code here must
never import the compiler.
"""
