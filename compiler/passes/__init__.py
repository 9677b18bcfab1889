"""The passes, one file each, named as the pass. `compiler/pipeline.py` is the order they run in."""
