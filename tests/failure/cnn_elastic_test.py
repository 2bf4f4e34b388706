"""dunlin-cnn in a job that processes join and leave while it trains."""

import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import CNN_IMAGES, ElasticTest, Job, await_progress, children_of, events, reports, some  # noqa: E402

RUN, CNN, PLOT, TRANSPORT = sys.argv[1:5]
del sys.argv[1:5]

TRAINING = [*CNN_IMAGES, "--batch-size", 4, "--learning-rate", 0.02, "--momentum", 0.5, "--threads", 1, "--quiet",
            "--transport", TRANSPORT]
# Far more iterations than any test waits for. The first workers sleep in between, so that newcomers get a core to start on.
ENDLESS = [*TRAINING, "--iterations", 10**7, "--report-every", 10, "--slowdown", "0:2", "--slowdown", "1:2"]
METHODS = {  # name -> options
    "notify-ack": ["--method", "stochastic", "--graph", "ring", "--batch-norm"],
    "bsp": ["--method", "stochastic", "--sync", "bsp"],
    "async": ["--method", "stochastic", "--sync", "async"],
    "local-sgd": ["--method", "local-sgd", "--section-length", 4],
    "partial": ["--method", "partial", "--section-length", 2],
}
# They do not take newcomers, and say so.
OTHERS = {"all-reduce": [], "parameter-server": [], "async-parameter-server": [], "ad-psgd": [],
          "partial": ["--groups", "static"]}


class Elastic(ElasticTest):
    run_command = RUN
    program = [CNN, *ENDLESS, "--on-peer-loss", "continue"]
    plot = [PLOT, "cnn"]

    def join(self, *options):
        return super().join(1, *options)

    def loss(self):
        return events(self.json, "progress")[-1]["loss"]

    def end(self, *jobs):
        """Ends the training at all ranks as Ctrl-C does. Those that end together need it at one of them."""
        for job in jobs:
            for pid in children_of(job.process.pid):
                os.kill(pid, signal.SIGINT)
        for job in jobs:
            job.wait()

    def test_a_job_grows_and_shrinks_and_learns_as_one_that_was_left_alone(self):
        for name, method in some(list(METHODS.items()), 1):
            with self.subTest(name):
                self.clear()
                alone = self.final([RUN, "-n", 2, CNN, *TRAINING, "--epochs", 3, *method], json=f"{name}.jsonl")
                job = self.start(2, 8, *method)
                first = self.join(*method)
                self.await_workers(job, 3)
                second = self.join(*method)
                self.await_workers(job, 4)
                os.kill(job.rank_pid(1), signal.SIGKILL)
                # Groups go on without a rank that is dead; the next change tells of it.
                if name != "partial":
                    self.await_workers(job, 3)
                os.kill(children_of(first.process.pid)[0], signal.SIGTERM)
                self.await_workers(job, 2)
                self.assertEqual(first.wait(), 0, first.text())
                self.assertRegex(first.text(), r"rank 2 has joined the job after \d+ iterations")
                self.assertRegex(first.text(), r"rank 2 leaves the job after \d+ iterations")
                self.await_condition(job, lambda: self.loss() < 1.1 * alone["loss"] + 0.02)
                self.assertEqual([self.seen("joined"), self.seen("left"), self.seen("died")], [[2, 3], [2], [1]])
                for text in (job.text(), second.text()):
                    self.assertNotRegex(text, "rank [023] (is|has) d")
                self.check_figure(["+3", "\u22122", "\u20201"])
                self.end(job, second)
                self.assertEqual(second.wait(), 0, second.text())
                final = events(self.json, "final")[0]
                self.assertEqual(final["lost_ranks"], [1])
                self.assertEqual([count > 0 for count in final["by_rank"]["iterations"]], [True, False, False, True])
                for field in ("test_loss", "mean_test_loss"):
                    self.assertLess(final[field], 1.25 * alone[field] + 0.1, field)

    def test_newcomers_go_on_when_all_that_began_have_left(self):
        method = METHODS["notify-ack"]
        job = self.start(2, 4, *method)
        newcomer = self.join(*method, "--json-out", self.json)
        self.await_workers(job, 3)
        os.kill(job.rank_pid(0), signal.SIGTERM)
        self.await_workers(job, 2)
        # It is the last one that has the model, but the newcomer, which reports from now on.
        os.kill(job.rank_pid(1), signal.SIGTERM)
        self.await_condition(newcomer, lambda: self.members()[-1]["workers"] == 1)
        await_progress(newcomer, self.json, len(events(self.json, "progress")) + 3)
        self.assertEqual(self.seen("left"), [0, 1])
        self.assertEqual(self.seen("died"), [])
        before = self.loss()
        self.end(newcomer)
        self.assertEqual(newcomer.wait(), 0, newcomer.text())
        self.assertEqual(job.wait(), 0, job.text())
        final = events(self.json, "final")[0]
        self.assertNotIn("lost_ranks", final)
        self.assertLess(final["test_loss"], 1.5 * before + 0.3)

    def test_a_killed_worker_costs_nothing_in_a_job_that_does_not_grow(self):
        for name in some(("local-sgd", "notify-ack"), 1):
            with self.subTest(name):
                if os.path.exists(self.json):
                    os.unlink(self.json)
                job = Job([RUN, "-n", 3, "--keep-going", CNN, *ENDLESS, *METHODS[name], "--on-peer-loss", "continue",
                           "--json-out", self.json])
                self.addCleanup(job.kill)
                await_progress(job, self.json)
                for rank in (1, 0):  # the second one reports
                    os.kill(job.rank_pid(rank), signal.SIGKILL)
                    self.await_workers(job, 2 if rank == 1 else 1)
                before = self.loss()
                self.end(job)
                final = events(self.json, "final")[0]
                self.assertEqual(final["lost_ranks"], [0, 1])
                self.assertLess(final["test_loss"], 1.5 * before + 0.3)

    def test_a_job_that_ends_ends_its_newcomers(self):
        for name in some(("partial", "bsp", "local-sgd"), 1):
            with self.subTest(name):
                self.clear()
                # The first ones are slow, so that there is time for a newcomer.
                options = [*METHODS[name], "--iterations", 600, "--slowdown", "0:5", "--slowdown", "1:5"]
                job = self.start(2, 4, *options)
                newcomer = self.join(*options)
                self.assertEqual(job.wait(), 0, job.text())
                if newcomer.wait() != 0:  # too late
                    self.assertRegex(newcomer.text(),
                                     "no member of this job is left|at their end|launcher|No such file|has ended")
                self.assertEqual(self.seen("died"), [])
                self.assertNotIn("lost_ranks", events(self.json, "final")[0])

    def test_a_newcomer_of_another_run_is_refused_and_harms_nobody(self):
        method = METHODS["notify-ack"]
        job = self.start(2, 8, *method)
        for options, words in ((["--learning-rate", 0.5], ("--learning-rate: the job has 0.02, this process has 0.5",)),
                               (["--seed", 7], ("--seed: the job has 1, this process has 7",)),
                               (["--graph", "complete"], ("--graph: the job has ring, this process has complete",))):
            other = self.join(*method, *options)
            self.assertEqual(other.wait(), 2, other.text())
            for part in ("trains with other options or data", *words):
                self.assertIn(part, other.text())
        unfit = self.join("--method", "all-reduce", "--on-peer-loss", "fail")
        self.assertEqual(unfit.wait(), 2, unfit.text())
        self.assertIn("--method all-reduce: its workers cannot change", unfit.text())
        self.join(*method)
        self.await_workers(job, 3)
        self.assertEqual(reports(job, "error"), {}, job.text())

    def test_methods_that_take_no_newcomers_say_so(self):
        for method, options in some(list(OTHERS.items()), 2):
            with self.subTest(method):
                job = Job([RUN, "-n", 3, "--max-ranks", 4, "--job-file", self.job_file, CNN, *TRAINING, "--method", method,
                           *options])
                self.assertEqual(job.wait(), 2, job.text())
                self.assertIn(f"--method {method}", job.text())
                self.assertIn("its workers cannot change", job.text())
                self.assertIn("stochastic, local-sgd, and partial with", job.text())
        needy = Job([RUN, "-n", 2, CNN, *TRAINING, "--on-peer-loss", "continue"])
        self.assertEqual(needy.wait(), 2, needy.text())
        self.assertIn("all-reduce cannot go on without a worker", needy.text())
        few = Job([RUN, "-n", 2, "--max-ranks", 100, "--job-file", self.job_file, CNN, *TRAINING, *METHODS["bsp"]])
        self.assertEqual(few.wait(), 2, few.text())
        self.assertIn("300 images; 100 workers with batches of 4 need 400", few.text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
