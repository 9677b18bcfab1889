"""Where programs come from, one folder a language: each makes a module of phase `trace`."""
