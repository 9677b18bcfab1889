"""Values from host to host: the transports, and which of them carries what."""
