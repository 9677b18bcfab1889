"""Writers of pictures, one module for each file format."""
