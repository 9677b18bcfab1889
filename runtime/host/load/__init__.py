"""Loading a plan: makes steps, prepared for devices, of its instructions."""
