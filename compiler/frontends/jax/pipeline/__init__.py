"""`pw.pipeline`: one ordinary loss, cut into stages before it is differentiated, each a jit placed on its slice."""
