"""Who may run where, and when: the controller, admission to islands, and the scheduling policies."""
