"""Devices: PJRT, which devices an island has, compiled code, copies between them, and limits of what is in flight."""
