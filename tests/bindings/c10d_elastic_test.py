"""Jobs of torchrun that start again: after a death, and when a host comes or goes.

    c10d_elastic_test.py [TEST...]
"""

import importlib.util
import os
import re
import sys
import unittest

if importlib.util.find_spec("torch") is None:
    print("skipped: no module 'torch'")
    sys.exit(77)

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import TORCHRUN, Job, JobTest, thorough  # noqa: E402
from ports import free_ports  # noqa: E402

RANK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "c10d_elastic_rank.py")
RESTARTING = [*TORCHRUN, "--max_restarts", "3", "--monitor_interval", "0.3"]


class ElasticTest(JobTest):
    def setUp(self):
        super().setUp()
        self.checkpoint = self.path("steps")

    def start(self, *arguments):
        job = Job([*RESTARTING, *arguments])
        self.addCleanup(job.kill)
        return job

    def starts(self, job):
        """[(restarts, ranks, the step at which it begins)] of the workers of a torchrun."""
        return [tuple(map(int, found)) for found in re.findall(r"restarts (\d+), ranks (\d+), begins at (\d+)", job.text())]

    def await_worker(self, job, ranks, begins=0):
        """Waits until a worker of a job of so many ranks has begun at that step or a later one. Returns that step."""
        def found():
            return [step for _, size, step in self.starts(job) if size == ranks and step >= begins]

        self.await_condition(job, found, timeout=60)
        return found()[-1]

    def steps(self):
        with open(self.checkpoint, encoding="utf-8") as file:
            return int(file.read())

    def test_all_workers_start_again_after_a_death(self):
        job = self.start("--standalone", "--nproc_per_node", 3, RANK, self.checkpoint, 20, "dies")
        self.assertEqual(job.wait(), 0, job.text())
        self.assertEqual(self.starts(job), [(0, 3, 0)] * 3 + [(1, 3, 5)] * 3, job.text())
        self.assertEqual((job.text().count("ends"), self.steps()), (3, 20), job.text())

    @thorough  # torchrun needs 20 s to notice that a host is gone
    def test_hosts_come_and_go(self):
        within = ["--nproc_per_node", 2, "--nnodes", "1:2", "--rdzv_backend", "c10d", "--rdzv_id", "job", "--rdzv_conf",
                  "last_call_timeout=1", "--rdzv_endpoint", f"127.0.0.1:{free_ports()}"]
        first = self.start(*within, RANK, self.checkpoint, 500)
        self.await_worker(first, 2)
        second = self.start(*within, RANK, self.checkpoint, 500)
        joined = self.await_worker(first, 4)
        self.assertGreater(joined, 0, first.text())
        self.await_condition(first, lambda: self.steps() >= joined + 20, timeout=60)
        second.kill()
        left = self.await_worker(first, 2, joined + 1)
        self.assertGreater(left, joined, first.text())
        self.assertEqual(first.wait(), 0, first.text())
        # A host that comes takes none of the restarts; one that goes takes one.
        self.assertEqual(self.starts(first), [(0, 2, 0)] * 2 + [(0, 4, joined)] * 2 + [(1, 2, left)] * 2, first.text())
        self.assertEqual((first.text().count("ends"), self.steps()), (2, 500), first.text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
