"""The order of the work: recognizing pipelines, one schedule a file, and what each costs."""
