"""A process that prints `there`, and then waits until it is killed."""

import threading

if __name__ == "__main__":
    print("there", flush=True)
    threading.Event().wait()
