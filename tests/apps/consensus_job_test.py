"""dunlin-consensus as whole jobs: every algorithm, what it writes, and what it says to wrong requests."""

import json
import math
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import Job, JobTest, events  # noqa: E402

RUN, CONSENSUS, PLOT = sys.argv[1:4]
del sys.argv[1:4]

COMMANDS = "dgd, exact-diffusion, gradient-tracking, push-diging, push-sum, fish-school"


class Jobs(JobTest):
    def run_job(self, ranks, *options, **how):
        return self.final([RUN, "-n", ranks, CONSENSUS, *options], **how)

    def lines(self, kind):
        return events(self.path("run.jsonl"), kind)

    def test_exact_methods_reach_the_optimum(self):
        for options in (["exact-diffusion"], ["gradient-tracking", "--graph", "exponential"],
                        ["push-diging"], ["push-diging", "--graph", "one-peer:mesh"],
                        ["gradient-tracking", "--problem", "logistic", "--iterations", 3000]):
            with self.subTest(options):
                final = self.run_job(5, *options)
                self.assertLess(final["error_max"], 1e-12)
                self.assertLess(final["consensus_error"], 1e-12)
                self.assertLess(final["rate"], 1)
                config, progress = self.lines("config")[0], self.lines("progress")
                self.assertEqual(config["algorithm"], options[0])
                self.assertEqual(config["ranks"], 5)
                self.assertEqual(len(progress), config["iterations"] + 1)
                self.assertEqual(progress[0]["error_max"], 1)
                self.assertEqual(progress[-1]["error_max"], final["error_max"])

    def test_ranks_with_other_options_are_told(self):
        for command, first, second, told in (
                (["dgd"], ["--step", 0.1], ["--step", 0.2], "--step: rank 0 has 0.1, rank 1 has 0.2"),
                (["dgd"], ["--noise", 0], [], "--noise: rank 0 has 0, rank 1 has 0.1"),
                (["push-sum"], ["--seed", 2], [], "--seed: rank 0 has 2, rank 1 has 1"),
                (["fish-school"], ["--steps", 9], ["--steps", 8], "--steps: rank 0 has 9, rank 1 has 8"),
                ([], ["dgd"], ["push-diging"], "command: rank 0 has dgd, rank 1 has push-diging")):
            with self.subTest(told):
                self.check_difference([RUN, CONSENSUS], command, first, second, told)

    def test_small_steps_converge_at_the_rate_of_gradient_descent(self):
        final = self.run_job(4, "gradient-tracking", "--step", 0.05, "--iterations", 2000)
        self.assertAlmostEqual(1 - final["rate"], 1 - final["rate_gradient_descent"],
                               delta=0.1 * (1 - final["rate_gradient_descent"]))

    def test_the_neighborhood_of_dgd_halves_with_the_step(self):
        ends = [self.run_job(6, "dgd", "--step", step, "--iterations", 6000, "--record-every", 100)
                for step in (0.08, 0.04)]
        self.assertGreater(ends[1]["error_max"], 1e-4)
        self.assertAlmostEqual(ends[0]["error_max"] / ends[1]["error_max"], 2, delta=0.2)
        for end in ends:
            self.assertLess(end["consensus_error"], end["consensus_bound"])
            self.assertGreater(end["consensus_error"], 0)

    def test_every_transport_gives_the_same_numbers(self):
        errors = set()
        for transport in ("shm", "ucx"):
            options = ["exact-diffusion", "--iterations", 50, "--transport", transport]
            alone = Job([CONSENSUS, *options])
            if alone.wait() != 0 and "not work" in alone.text():
                continue
            self.run_job(3, *options)
            errors.add(tuple(moment["error_max"] for moment in self.lines("progress")))
        self.assertEqual(len(errors), 1)

    def test_push_sum_keeps_its_mass(self):
        for graph in ("ring", "star"):
            final = self.run_job(4, "push-sum", "--graph", graph, "--rounds", 600, "--seed", 3)
            self.assertLess(final["mass_error"], 1e-12)
            self.assertLess(final["weight_error"], 1e-12)
            self.assertLess(final["error_max"], 1e-10)
            self.assertGreaterEqual(final["rounds"], 4 * 600)
            self.assertEqual(len(self.lines("progress")), 601)

    def test_a_school_knows_where_the_predator_is(self):
        for behavior in ("disperse", "encircle"):
            final = self.run_job(4, "fish-school", "--behavior", behavior, "--fish-per-rank", 3)
            self.assertLess(final["estimate_error"], 0.5)  # noise: 5 % of 6 m for a fish by itself
            moments = self.lines("fish")
            self.assertEqual([moment["step"] for moment in moments], list(range(0, 401, 4)))
            for moment in moments:
                self.assertEqual(len(moment["positions"]), 12)
                distances = [math.dist(fish, moment["predator"]) for fish in moment["positions"]]
                self.assertAlmostEqual(min(distances), moment["distance_min"], 9)
                self.assertAlmostEqual(max(distances), moment["distance_max"], 9)
            self.assertEqual(moments[-1]["distance_mean"], final["distance_mean"])
            if behavior == "disperse":
                self.assertGreater(final["distance_min"], 5)
            else:
                self.assertAlmostEqual(final["distance_min"], 2, delta=0.2)
                self.assertAlmostEqual(final["distance_max"], 2, delta=0.2)

    def test_the_school_does_not_depend_on_timing(self):
        traces = []
        for _ in range(2):
            self.run_job(3, "fish-school", "--steps", 40)
            traces.append(self.lines("fish"))
        self.assertEqual(*traces)

    def test_runs_can_be_drawn(self):
        self.run_job(2, "dgd", "--iterations", 50, json="dgd.jsonl")
        self.run_job(2, "push-sum", json="sum.jsonl")
        done = subprocess.run([PLOT, "consensus", "--table", f"dgd={self.path('dgd.jsonl')}",
                               f"push-sum={self.path('sum.jsonl')}"], text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 3)

    def test_standard_output_is_json_alone_where_it_is_asked_for(self):
        done = subprocess.run([CONSENSUS, "dgd", "--iterations", "3", "--json"], text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        kinds = [json.loads(line)["event"] for line in done.stdout.splitlines()]
        self.assertEqual(kinds, ["config"] + 4 * ["progress"] + ["final"])

    def test_a_run_that_misses_its_target_says_so(self):
        job = Job([CONSENSUS, "dgd", "--iterations", 2, "--target-error", 1e-9])
        self.assertEqual(job.wait(), 3)
        self.assertIn("did not reach 1e-09", job.text())
        job = Job([RUN, "-n", 3, CONSENSUS, "dgd", "--step", 5, "--iterations", 5000])
        self.assertEqual(job.wait(), 3)
        self.assertIn("diverged", job.text())
        self.assertIn("--step", job.text())

    def test_a_job_that_processes_may_join_is_refused(self):
        job = Job([RUN, "-n", 2, "--max-ranks", 3, CONSENSUS, "dgd", "--iterations", 3])
        self.assertEqual(job.wait(), 2)
        self.assertIn("takes no part in a job that processes may join", job.text())

    def test_wrong_requests_are_told(self):
        for command, code, text in (
                ([CONSENSUS], 2, f"A command is required\nCommands: {COMMANDS}"),
                ([CONSENSUS, "dijkstra"], 2, f"'dijkstra' is not a command\nCommands: {COMMANDS}"),
                ([CONSENSUS, "dgd", "push-sum"], 2, "push-sum"),
                ([CONSENSUS, "--jsn", "dgd"], 2, "--jsn"),
                ([CONSENSUS, "dgd", "--jsn"], 2, "--jsn"),
                ([CONSENSUS, "dgd", "--json-out", "-"], 2, "--json prints on standard output"),
                ([CONSENSUS, "dgd", "--graph", "moebius"], 2, "moebius"),
                ([CONSENSUS, "dgd", "--step", 0], 2, "--step"),
                ([CONSENSUS, "dgd", "--step", "nan"], 2, "step"),
                ([CONSENSUS, "dgd", "--target-error", "nan"], 2, "--target-error: 'nan' is not a finite number"),
                ([CONSENSUS, "dgd", "--target-error", "1e999"], 2, "--target-error: Value 1e999 not in range"),
                ([CONSENSUS, "dgd", "--iterations", -5], 2, "--iterations"),
                ([CONSENSUS, "exact-diffusion", "--decay", 0.5], 2, "--decay"),
                ([CONSENSUS, "dgd", "--rows", 3], 2, "3 rows per rank don't determine"),
                ([CONSENSUS, "dgd", "--problem", "logistic", "--lambda", 0], 2, "lambda above 0"),
                ([CONSENSUS, "dgd", "--noise", -1], 2, "noise is -1"),
                ([RUN, "-n", 3, CONSENSUS, "dgd", "--graph", "one-peer:ring"], 2, "doubly stochastic"),
                ([RUN, "-n", 4, CONSENSUS, "exact-diffusion", "--graph", "ring"], 2, "gradient-tracking"),
                ([RUN, "-n", 3, CONSENSUS, "exact-diffusion", "--graph", "one-peer-exponential"], 2, "stays as it is"),
                ([RUN, "-n", 3, CONSENSUS, "push-sum", "--graph", "one-peer-exponential"], 2, "stays as it is"),
                ([CONSENSUS, "push-sum", "--rounds", 0], 2, "--rounds"),
                ([CONSENSUS, "push-sum", "--pause", -1], 2, "--pause"),
                ([CONSENSUS, "fish-school", "--behavior", "sleep"], 2, "--behavior"),
                ([CONSENSUS, "fish-school", "--sight", 0], 2, "sight is 0, not above 0"),
                ([CONSENSUS, "fish-school", "--learning-rate", 2.5], 2, "without bounds"),
                ([CONSENSUS, "dgd", "--transport", "pigeon"], 2, "pigeon"),
                ([CONSENSUS, "dgd", "--json-out", self.path("no/such/folder")], 2, "no/such/folder"),
                ([CONSENSUS, "dgd", "--json-out", "/dev/full"], 1, "/dev/full")):
            with self.subTest(command[1:]):
                job = Job(command)
                self.assertEqual(job.wait(60), code, job.text())
                self.assertIn(text, job.text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
