"""Messages between the processes of a cluster, and the connections that carry them."""
