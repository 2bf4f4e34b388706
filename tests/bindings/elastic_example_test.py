"""The example of an elastic job: a process joins it, and all end with the same model."""

import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import Job, JobTest  # noqa: E402

RUN, EXAMPLE = sys.argv[1:3]
del sys.argv[1:3]


class ElasticExample(JobTest):
    def test_a_newcomer_ends_with_the_model_of_the_others(self):
        job_file = self.path("job")
        job = Job([RUN, "-n", 2, "--max-ranks", 4, "--job-file", job_file, EXAMPLE, 3])
        self.addCleanup(job.kill)
        while not os.path.exists(job_file):
            self.assertIsNone(job.process.poll(), job.text())
        newcomer = Job([RUN, "--join", job_file, "-n", 1, EXAMPLE, 3])
        self.addCleanup(newcomer.kill)
        self.assertEqual(newcomer.wait(), 0, newcomer.text())
        self.assertEqual(job.wait(), 0, job.text())
        self.assertIn("epoch 1: 3 members", newcomer.text())
        ends = re.findall(r"after step (\d+): (\S+)", job.text() + "\n" + newcomer.text())
        self.assertEqual(len(ends), 3, job.text() + "\n" + newcomer.text())
        self.assertEqual(len(set(ends)), 1, ends)


if __name__ == "__main__":
    unittest.main(verbosity=2)
