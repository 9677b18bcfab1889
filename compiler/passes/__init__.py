"""The passes, one file each, named after the pass. `compiler/pass_manager.py` defines their order."""
