"""Plans -> results. Never imports the compiler."""
