"""Whether the modules of a plan may be handed to XLA: the rules, and the process that applies them first."""
