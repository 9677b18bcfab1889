"""What writes pictures: a module for each kind of file."""
