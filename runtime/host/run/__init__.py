"""One run of a loaded plan: dispatch, control flow on data, runs in flight, and failures."""
