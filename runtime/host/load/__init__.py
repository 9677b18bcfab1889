"""Loads plans: turns their instructions into steps that are prepared for devices."""
