"""A process that says that it is there, and does not end by itself."""

import threading

if __name__ == "__main__":
    print("there", flush=True)
    threading.Event().wait()
