"""Loads plans on devices: compiles their modules, and turns their instructions into prepared steps that a run only has
to call.
"""
