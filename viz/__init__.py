"""Pictures of plans and of their runs: pages, drawings, text, and files that other viewers read."""
