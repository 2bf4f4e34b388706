"""Python programs in a job that processes join and leave while it runs."""

import os
import re
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import LOADED, Job, JobTest, children_of, some  # noqa: E402

RUN, EXAMPLE = sys.argv[1:3]
del sys.argv[1:3]
RANK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "elastic_rank.py")


class ElasticPython(JobTest):
    def setUp(self):
        super().setUp()
        self.job_file = self.path("job")

    def start(self, program, *arguments):
        job = Job([RUN, "-n", 2, "--max-ranks", 6, "--job-file", self.job_file, "--keep-going", sys.executable, program,
                   *arguments])
        self.addCleanup(job.kill)
        self.await_text(job, "rank 0: members [0, 1]")
        return job

    def join(self, program, *arguments):
        newcomer = Job([RUN, "--join", self.job_file, "-n", 1, "--keep-going", sys.executable, program, *arguments])
        self.addCleanup(newcomer.kill)
        return newcomer

    def await_text(self, job, text, since=0):
        deadline = time.monotonic() + LOADED * 60
        while text not in job.text()[since:]:
            self.assertIsNone(job.process.poll(), job.text())
            self.assertLess(time.monotonic(), deadline, f"no '{text}' in\n{job.text()}")
            job._pause()

    def await_step(self, job):
        """Waits until rank 0 has trained on."""
        self.await_text(job, "rank 0: step", len(job.text()))

    def test_a_job_grows_and_shrinks(self):
        for method in some(("notify-ack", "groups", "async"), 2):
            with self.subTest(method):
                if os.path.exists(self.job_file):
                    os.unlink(self.job_file)
                job = self.start(RANK, method)
                self.await_step(job)
                first = self.join(RANK, method)
                self.await_text(job, "rank 0: members [0, 1, 2]")
                second = self.join(RANK, method)
                self.await_text(job, "rank 0: members [0, 1, 2, 3]")
                self.await_step(job)
                os.kill(job.rank_pid(1), signal.SIGKILL)
                # Groups go on without a rank that is dead; the next change tells of it.
                if method != "groups":
                    self.await_text(job, "rank 0: members [0, 2, 3]")
                self.await_step(job)
                os.kill(children_of(first.process.pid)[0], signal.SIGTERM)
                self.await_text(job, "rank 0: members [0, 3]")
                self.assertEqual(first.wait(), 0, first.text())
                self.await_step(job)
                for last in (job.rank_pid(0), children_of(second.process.pid)[0]):
                    os.kill(last, signal.SIGTERM)
                self.assertEqual(second.wait(), 0, second.text())
                job.wait()
                errors = [float(error) for text in (job.text(), first.text(), second.text())
                          for error in re.findall(r"left after step \d+ with error (\S+)", text)]
                self.assertEqual(len(errors), 3, job.text())
                # The errors fall, and newcomers do not begin anew, with an error of 1.
                course = [float(error) for error in re.findall(r"rank 0: step \d+ error (\S+)", job.text())]
                self.assertLess(course[-1], course[0])
                for newcomer in (first, second):
                    begun = float(re.search(r"begins with error (\S+)", newcomer.text())[1])
                    self.assertLess(begun, 1)
                # Nobody takes a rank that leaves for dead.
                for text in (job.text(), first.text(), second.text()):
                    self.assertNotRegex(text, "rank [023] is dead")

    def test_the_example_ends_with_a_newcomer(self):
        job = self.start(EXAMPLE, 3)
        newcomer = self.join(EXAMPLE, 3)
        self.assertEqual(newcomer.wait(), 0, newcomer.text())
        self.assertEqual(job.wait(), 0, job.text())
        self.assertIn("rank 0: members [0, 1, 2]", job.text())
        ends = re.findall(r"after step (\d+): largest error of a weight (\S+)", job.text() + "\n" + newcomer.text())
        self.assertEqual(len(ends), 3, job.text())
        self.assertEqual(len({step for step, _ in ends}), 1, ends)
        for _, error in ends:
            self.assertLess(float(error), 1e-3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
