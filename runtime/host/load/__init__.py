"""Loading a plan: its instructions become steps that are prepared for devices."""
