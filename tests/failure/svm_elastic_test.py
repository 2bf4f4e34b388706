"""dunlin-svm in a job that processes join and leave while it runs."""

import os
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import ElasticTest, Job, await_progress, children_of, events, reports  # noqa: E402

RUN, SVM, PLOT, TRANSPORT = sys.argv[1:5]
del sys.argv[1:5]

SMALL_STEPS = ["--generate", "--rows", 4000, "--features", 2000, "--nonzeros", 20, "--sync-every", 50, "--eval-every", 200,
               "--quiet", "--transport", TRANSPORT, "--on-peer-loss", "continue"]
# Far more of them than any test waits for.
ENDLESS = [*SMALL_STEPS, "--epochs", 1e6]


class Elastic(ElasticTest):
    run_command = RUN
    program = [SVM, *ENDLESS]
    plot = [PLOT, "svm"]

    def seen(self, kind):
        return sorted(super().seen(kind))

    def objective(self):
        return events(self.json, "progress")[-1]["objective"]

    def test_a_job_grows_and_shrinks_and_reaches_the_objective_of_one_that_was_left_alone(self):
        alone = self.path("alone.jsonl")
        left_alone = Job([RUN, "-n", 4, SVM, *SMALL_STEPS, "--epochs", 100, "--json-out", alone])
        self.assertEqual(left_alone.wait(), 0, left_alone.text())
        for sync in ("notify-ack", "bsp", "async"):
            with self.subTest(sync):
                self.clear()
                job = self.start(4, 12, "--sync", sync)
                first = self.join(3, "--sync", sync)
                self.await_workers(job, 7)
                second = self.join(1, "--sync", sync)
                self.await_workers(job, 8)
                os.kill(job.rank_pid(2), signal.SIGKILL)
                self.await_workers(job, 7)
                # One of the newcomers is killed, and the other three leave.
                os.kill(children_of(first.process.pid)[0], signal.SIGKILL)
                self.await_workers(job, 6)
                for pid in [*children_of(first.process.pid), *children_of(second.process.pid)]:
                    os.kill(pid, signal.SIGTERM)
                self.await_workers(job, 3)
                while self.objective() > 1.05 * events(alone, "final")[0]["objective"]:
                    await_progress(job, self.json, len(events(self.json, "progress")) + 1)
                self.assertEqual(self.seen("joined"), [4, 5, 6, 7])
                self.assertEqual(len(self.seen("died")), 2, self.members())
                self.assertIn(2, self.seen("died"))
                self.assertEqual(len(self.seen("left")), 3, self.members())
                self.assertEqual(second.wait(), 0, second.text())
                self.assertIn("leaves the job", second.text())
                self.assertIsNone(job.process.poll(), job.text())
                self.check_figure(["+4", "\u20202"])
                # All that are left leave, and the job is over.
                os.killpg(job.process.pid, signal.SIGTERM)
                job.wait()
                self.assertFalse(os.path.exists(self.job_file))

    def test_a_worker_that_was_killed_comes_back(self):
        job = self.start(3, 6)
        for rank in (1, 0):  # the last one reports, so another one takes that over
            os.kill(job.rank_pid(rank), signal.SIGKILL)
            self.await_workers(job, 2)
            self.join(1)
            self.await_workers(job, 3)
        self.assertEqual(self.seen("died"), [0, 1])
        self.assertEqual(self.seen("joined"), [3, 4])

    def test_a_job_that_processes_join_until_its_end_ends_well(self):
        for sync in ("notify-ack", "bsp", "async"):
            with self.subTest(sync):
                self.clear()
                options = [*SMALL_STEPS, "--sync", sync, "--epochs", 200]
                job = Job([RUN, "-n", 2, "--max-ranks", 12, "--job-file", self.job_file, SVM, *options, "--json-out",
                           self.json])
                self.addCleanup(job.kill)
                await_progress(job, self.json)
                newcomers = []
                # Each of them makes the job slower, so that it ends after some of them have joined.
                while job.process.poll() is None and len(newcomers) < 3:
                    newcomers.append(Job([RUN, "--join", self.job_file, "-n", 1, SVM, *options]))
                    self.addCleanup(newcomers[-1].kill)
                    time.sleep(0.1)
                self.assertEqual(job.wait(), 0, job.text())
                for newcomer in newcomers:  # too late for some of them
                    if newcomer.wait() != 0:
                        self.assertRegex(newcomer.text(), "no member of this job is left|at their end|launcher|No such file|has ended")
                self.assertEqual(self.seen("died"), [])

    def test_the_target_ends_newcomers_too(self):
        job = self.start(2, 4, "--target-objective", 0.1455)
        newcomer = self.join(1)  # that has no target itself
        self.assertEqual(job.wait(), 0, job.text())
        if newcomer.wait() != 0:  # too late
            self.assertRegex(newcomer.text(), "no member of this job is left|at their end|launcher|No such file|has ended")

    def test_a_leader_that_leaves_tells_what_it_has_not_evaluated_yet(self):
        job = Job([RUN, "-n", 2, "--max-ranks", 4, "--job-file", self.job_file, "--keep-going", SVM, *ENDLESS,
                   "--deferred-eval", "--json-out", self.json])
        self.addCleanup(job.kill)
        while not os.path.exists(self.job_file):
            job._pause()
        self.join(1, "--deferred-eval")
        while not self.members():
            self.assertIsNone(job.process.poll(), job.text())
            job._pause()
        os.kill(job.rank_pid(0), signal.SIGTERM)
        while not self.seen("left"):
            self.assertIsNone(job.process.poll(), job.text())
            job._pause()
        # The next leader tells nothing before its end.
        self.assertEqual(len(events(self.json, "progress")), self.members()[-1]["exchange"] // 200)

    def test_the_first_worker_leaves(self):
        job = self.start(2, 4)
        self.join(1)
        self.await_workers(job, 3)
        os.kill(job.rank_pid(0), signal.SIGTERM)
        self.await_workers(job, 2)
        self.assertEqual(self.seen("left"), [0])
        self.assertEqual(self.seen("died"), [])

    def test_a_newcomer_of_another_run_is_refused_and_harms_nobody(self):
        job = self.start(2, 6)
        other = self.join(1, "--lambda", 0.5, "--graph", "complete")
        self.assertNotEqual(other.wait(), 0)
        self.assertIn("trains with other options or data", other.text())
        self.assertRegex(other.text(), "--lambda: the job has 0.0001, this process has 0.5")
        other = self.join(1, "--shard-skew", "label:0.5")
        self.assertNotEqual(other.wait(), 0)
        self.assertIn("--shard-skew: the job has none, this process has label:0.5", other.text())
        # The set has the same shape, but other labels.
        other = self.join(1, "--flipped", 0.2)
        self.assertNotEqual(other.wait(), 0)
        self.assertRegex(other.text(), "trains with other options or data than this process: "
                         "training set .*: the job has ([0-9a-f]+), this process has (?!\\1)")
        self.join(1)
        self.await_workers(job, 3)

    def test_newcomers_that_are_killed_at_any_time_harm_nobody(self):
        job = self.start(2, 16)
        for turn in range(8):
            newcomer = self.join(1)
            time.sleep(0.02 * turn)
            newcomer.kill()
            await_progress(job, self.json, len(events(self.json, "progress")) + 1)
        self.join(1)
        self.await_workers(job, 3)
        self.assertEqual(reports(job, "error"), {}, job.text())

    def test_a_job_that_is_full_or_not_there_says_so(self):
        self.start(2, 3)
        self.assertEqual(os.stat(self.job_file).st_mode & 0o777, 0o600)
        self.join(1)
        while not self.members():
            pass
        late = self.join(1)
        self.assertNotEqual(late.wait(), 0)
        self.assertIn("all 3 ranks of this job have been taken", late.text())
        os.rename(self.job_file, self.path("moved"))
        nowhere = self.join(1)
        self.assertNotEqual(nowhere.wait(), 0)
        self.assertIn("No such file", nowhere.text())
        with open(self.job_file, "w", encoding="ascii") as file:
            file.write("something else\n")
        os.chmod(self.job_file, 0o600)
        nothing = self.join(1)
        self.assertNotEqual(nothing.wait(), 0)
        self.assertIn("is no job file", nothing.text())
        os.chmod(self.job_file, 0o644)
        open_to_all = self.join(1)
        self.assertNotEqual(open_to_all.wait(), 0)
        self.assertIn("accessible to other users", open_to_all.text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
