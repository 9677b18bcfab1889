"""Watching runs: the watchdog, the recorder, and injected faults."""
