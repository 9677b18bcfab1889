"""Decides which run may enqueue on which island, and when: controller, admission and scheduling policies."""
