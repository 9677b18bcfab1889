"""The passes, one file each, named as the pass. `compiler/pass_manager.py` is the order they run in."""
