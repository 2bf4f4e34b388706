"""Programs one of whose ranks dies when it has joined: each survivor names it at once, or goes on without it."""

import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import Job, JobTest, events, reports, some  # noqa: E402

RUN, PROBE, CONSENSUS, LOGREG, PERF = sys.argv[1:6]
CNN = sys.argv[6] if len(sys.argv) > 6 else None
del sys.argv[1:]

RANKS = 4
# A death is an event that takes milliseconds. Neither a heartbeat nor a deadline tells of it within the limit, which a
# loaded host doesn't reach.
ENVIRONMENT = {"DUNLIN_HEARTBEAT": "60s", "DUNLIN_DEADLINE": "100s"}
LIMIT = 20
TRAINING = ["--generate", "--images", 150, "--test-images", 50, "--batch-size", 4, "--learning-rate", 0.01, "--quiet",
            "--iterations", 10]
KEYS = ("cnn/timeout cnn/terms", "", "cnn/run cnn/terms")


class StartUp(JobTest):
    def start(self, victim, key, *command):
        """The victim dies when it has joined, or when a rank has published the key. The others run the command.

        key: may be followed by a topic on which the victim agrees with rank 0 before.
        """
        script = f'[ $DUNLIN_RANK = {victim} ] && exec {PROBE} die-after {key}; exec "$0" "$@"'
        job = Job([RUN, "-n", RANKS, "--keep-going", "sh", "-c", script, *command], env=ENVIRONMENT)
        self.addCleanup(job.kill)
        return job

    def check_named(self, victim, key, *command):
        job = self.start(victim, key, *command)
        self.assertEqual(job.wait(), 1, job.text())
        died = [moment for moment, line in job.lines if line.startswith(f"dunlin-run: rank {victim} ")]
        found = reports(job, rf"peer_dead: .*rank {victim} is dead|peer_dead: .*rank {victim}, which is dead")
        self.assertEqual(sorted(found), [rank for rank in range(RANKS) if rank != victim], job.text())
        for moment, line in found.values():
            self.assertLess(moment - died[0], LIMIT, line)

    def test_the_dead_rank_is_named_by_all_others(self):
        for victim in (0, 1):
            for command in ([CONSENSUS, "exact-diffusion"], [CONSENSUS, "push-sum"], [CONSENSUS, "fish-school"],
                            [LOGREG, "--generate", "--rows", 400, "--features", 50],
                            [PERF, "all-reduce"], [PERF, "mutex"], [PERF, "neighbor-all-reduce"], [PERF, "groups"]):
                with self.subTest(victim=victim, command=command[0:2]):
                    self.check_named(victim, "", *command)

    @unittest.skipUnless(CNN, "this build has no LibTorch")
    def test_a_dead_worker_is_named_where_the_training_needs_it(self):
        for method in some(("all-reduce", "stochastic", "parameter-server", "local-sgd"), 2):
            for key in some(KEYS, 2):
                with self.subTest(method=method, key=key):
                    self.check_named(1, key, CNN, *TRAINING, "--method", method)

    @unittest.skipUnless(CNN, "this build has no LibTorch")
    def test_a_dead_server_is_named_by_all_workers(self):
        for key in some(KEYS, 1):
            with self.subTest(key=key):
                self.check_named(3, key, CNN, *TRAINING, "--method", "async-parameter-server")

    @unittest.skipUnless(CNN, "this build has no LibTorch")
    def test_training_starts_without_a_worker_that_it_does_not_need(self):
        for method in ("async-parameter-server", "ad-psgd", "partial"):
            for key in some(KEYS, 1):
                with self.subTest(method=method, key=key):
                    path = self.path(f"{method}.{re.sub('[/ ]', '.', key)}")
                    job = self.start(1, key, CNN, *TRAINING, "--method", method, "--json-out", path)
                    self.assertEqual(job.wait(), 0, job.text())
                    self.assertEqual(events(path, "final")[0]["lost_ranks"], [1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
