"""One run of a loaded plan: dispatch, control flow on data, what is in flight, and the buffers that it makes."""
