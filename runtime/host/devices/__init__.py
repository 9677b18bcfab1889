"""Devices: the PJRT layer, island binding, compiled code, transfers, and limits on executions in flight."""
