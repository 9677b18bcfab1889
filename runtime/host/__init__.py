"""What a host does with its devices: it loads plans, runs them, and watches what becomes of them."""
