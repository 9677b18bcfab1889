"""The program in the forms of others: as a module of Shardy's MPMD dialect, and as IFRT IR."""
