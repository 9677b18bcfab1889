"""The front end for programs that Shardy's MPMD compiler has partitioned (docs/shardy.md)."""
