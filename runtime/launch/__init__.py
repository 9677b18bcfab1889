"""Starting the processes of hosts."""
