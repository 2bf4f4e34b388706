"""The timeline: a file of this rank's activities, which chrome://tracing and Perfetto can read at any moment."""

import json
import threading
import time


class Timeline:
    """Events of one process. Any thread may call.

    Activities have BlueFog's names, for tools that search for them: ENQUEUE_X while an operation is being started,
    MPI_X from then until it was found to be over.
    """

    def __init__(self, path, rank):
        self._file = open(path, "w", encoding="utf-8")
        self._file.write("[\n")
        self._rank = rank
        self._lock = threading.Lock()
        self._threads = {threading.main_thread().ident: 0}
        self._write({"ph": "M", "name": "process_name", "args": {"name": f"rank {rank}"}})

    def begin(self, tensor, activity):
        """Begins an activity of this thread, until end(). Activities may be nested."""
        self._write({"ph": "B", "name": activity, "cat": "activity", "args": {"tensor": tensor}})

    def end(self, tensor):
        self._write({"ph": "E", "cat": "activity", "args": {"tensor": tensor}})

    def start(self, number, tensor, operation):
        """Begins an operation, until finish(). Any number may overlap."""
        self._write({"ph": "b", "cat": "operation", "id": number, "name": "MPI_" + operation,
                     "args": {"tensor": tensor}})

    def finish(self, number, tensor, operation):
        self._write({"ph": "e", "cat": "operation", "id": number, "name": "MPI_" + operation,
                     "args": {"tensor": tensor}})

    def close(self):
        with self._lock:
            self._file.close()

    def _write(self, event):
        with self._lock:
            if self._file.closed:
                return
            thread = self._threads.setdefault(threading.get_ident(), len(self._threads))
            event |= {"ts": time.monotonic_ns() / 1000, "pid": self._rank, "tid": thread}
            self._file.write(json.dumps(event) + ",\n")
            # With this, the file of a program that hangs has the last events.
            self._file.flush()
