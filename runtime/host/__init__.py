"""The work of a host with its devices: it loads plans, runs them, and watches the runs."""
