"""Which run may enqueue where, and when: the controller, admission to islands, and the scheduling policies."""
