"""Watching runs: the watchdog, the recorder, and faults on purpose."""
