"""Files by which ranks of a host tell another one that they are done, while that one stays out of Dunlin."""

import os
import tempfile
import time


class ToldFiles:
    """One file for each of these ranks, under a name that all ranks of the job make alike."""

    def __init__(self, name, ranks):
        self._files = {rank: os.path.join(tempfile.gettempdir(), f"dunlin_{name}_{os.getppid()}_{rank}") for rank in ranks}

    def clear(self):
        """Removes what there is, perhaps of a test that has failed."""
        for file in filter(os.path.exists, self._files.values()):
            os.unlink(file)

    def tell(self, rank):
        with open(self._files[rank], "w", encoding="ascii"):
            pass

    def wait(self):
        """Sleeps until all have told, for at most a minute. Returns the ranks that have not."""
        until = time.monotonic() + 60
        while (missing := [rank for rank, file in self._files.items() if not os.path.exists(file)]):
            if time.monotonic() >= until:
                break
            time.sleep(0.05)
        self.clear()
        return missing
