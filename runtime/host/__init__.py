"""The host side of the runtime: loads plans on devices, enqueues their runs, and watches the runs."""
