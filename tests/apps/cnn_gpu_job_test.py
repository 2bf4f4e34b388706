"""dunlin-cnn --device cuda as whole jobs: it learns what CPUs learn with every method that takes GPUs, goes on from
checkpoints, and refuses what cannot be.

    cnn_gpu_job_test.py DUNLIN_RUN DUNLIN_CNN FAKE_CUDA_FOLDER [TEST...]

The GPUs are the two of the stand-in for CUDA's driver in that folder.
"""

import os
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import Job, JobTest, await_progress, events, reports  # noqa: E402

RUN, CNN, FAKE = map(os.path.abspath, sys.argv[1:4])
del sys.argv[1:4]

TRAINING = ["--generate", "--images", 160, "--test-images", 40, "--noise", 16, "--batch-size", 8, "--iterations", 16,
            "--learning-rate", 0.02, "--momentum", 0.5, "--weight-decay", 1e-4, "--report-every", 1, "--quiet"]
GPU = {"LD_LIBRARY_PATH": FAKE, "DUNLIN_TRANSPORTS": "shm"}
# The loss on a GPU and that on a CPU differ by rounding, which the training enlarges from step to step.
TOLERANCE = 0.01


class GpuJobs(JobTest):
    def train(self, device, *options, ranks=2):
        """The result of a job and the losses of rank 0."""
        launcher = [RUN, "-n", ranks] if ranks > 1 else []
        self.jobs = getattr(self, "jobs", 0) + 1
        name = self.path(f"{self.jobs}.jsonl")
        job = Job([*launcher, CNN, *TRAINING, "--device", device, *options, "--json-out", name], env=GPU)
        self.assertEqual(job.wait(), 0, job.text())
        self.assertEqual(events(name, "config")[-1]["device"], "cpu" if device == "cpu" else "cuda:0")
        return events(name, "final")[-1], [line["loss"] for line in events(name, "progress")]

    def compare(self, *options, ranks=2):
        final, losses = self.train("cuda", *options, ranks=ranks)
        expected_final, expected = self.train("cpu", *options, ranks=ranks)
        self.assertEqual(len(losses), len(expected))
        for loss, on_cpu in zip(losses, expected):
            self.assertAlmostEqual(loss, on_cpu, delta=TOLERANCE * on_cpu)
        for field in ("test_loss", "mean_test_loss"):
            self.assertAlmostEqual(final[field], expected_final[field], delta=TOLERANCE * expected_final[field])

    def test_a_single_worker(self):
        self.compare("--batch-norm", "--augment", "--evaluate-every", 5, ranks=1)

    def test_all_reduce(self):
        self.compare("--method", "all-reduce")

    def test_local_sgd(self):
        self.compare("--method", "local-sgd", "--section-length", 4)

    def test_notify_ack(self):
        self.compare("--method", "stochastic", "--graph", "complete")

    # Which groups there are depends on which rank comes first.
    def test_partial(self):
        final, losses = self.train("cuda", "--method", "partial", "--group-size", 2)
        self.assertLess(final["mean_test_loss"], 0.8 * losses[0])
        self.assertGreater(final["bytes_sent"], 0)

    def test_what_is_interrupted_goes_on_bit_for_bit(self):
        final, losses = self.train("cuda", "--batch-norm", "--checkpoint", self.path("state"), "--checkpoint-every", 8)
        resumed, rest = self.train("cuda", "--batch-norm", "--resume", self.path("state"), "--iterations", 20)
        self.assertEqual(resumed["iterations"], 20)
        self.assertEqual(len(rest), 4)
        whole, course = self.train("cuda", "--batch-norm", "--iterations", 20)
        self.assertEqual(course, losses + rest)
        self.assertEqual(resumed["test_loss"], whole["test_loss"])
        self.assertNotEqual(final["test_loss"], whole["test_loss"])

    def start(self, name, *options):
        job = Job([RUN, "-n", 3, "--keep-going", CNN, *TRAINING, "--iterations", 10**6, "--device", "cuda", *options,
                   "--json-out", self.path(name)], env=GPU)
        self.addCleanup(job.kill)
        return job

    def test_a_killed_rank_is_named_by_all_others(self):
        for method, options in (("all-reduce", []), ("stochastic", ["--graph", "complete"])):
            with self.subTest(method):
                job = self.start(method, "--method", method, *options)
                await_progress(job, self.path(method))
                os.kill(job.rank_pid(1), signal.SIGKILL)
                self.assertNotEqual(job.wait(), 0)
                self.assertEqual(sorted(reports(job, "error: .*rank 1")), [0, 2], job.text())

    # The run ends with a signal, after groups without the dead worker.
    def test_survivors_of_partial_conclude(self):
        job = self.start("partial", "--method", "partial", "--group-size", 2)
        await_progress(job, self.path("partial"), 10)
        os.kill(job.rank_pid(1), signal.SIGKILL)
        await_progress(job, self.path("partial"), len(events(self.path("partial"), "progress")) + 10)
        job.process.send_signal(signal.SIGINT)
        job.wait()
        final = events(self.path("partial"), "final")
        self.assertEqual(len(final), 1, job.text())
        self.assertEqual(final[0]["lost_ranks"], [1])

    def test_a_loss_that_is_no_number_is_told(self):
        job = Job([CNN, *TRAINING, "--device", "cuda", "--learning-rate", 1e6, "--weight-decay", 1e3, "--iterations", 200],
                  env=GPU)
        self.assertEqual(job.wait(), 1, job.text())
        self.assertRegex(job.text(), r"iteration \d+ \(a smaller --learning-rate may help\): the loss is not a finite")

    def refused(self, code, why, *options, **env):
        job = Job([RUN, "-n", 2, CNN, *TRAINING, *options], env={**GPU, **env})
        self.assertEqual(job.wait(), code, job.text())
        self.assertRegex(job.text(), why)

    def test_what_cannot_be_is_refused(self):
        for method in ("parameter-server", "async-parameter-server", "ad-psgd"):
            self.refused(2, f"{method}: models on GPUs are not supported: use host memory, or all-reduce", "--device", "cuda",
                         "--method", method)
        self.refused(2, "bsp needs models in host memory", "--device", "cuda", "--method", "stochastic", "--sync", "bsp")
        self.refused(2, "static groups need models in host memory", "--device", "cuda", "--method", "partial", "--groups",
                     "static")
        self.refused(2, "--device cuda:7: this host has 2 GPUs, cuda:0 to cuda:1", "--device", "cuda:7")
        self.refused(2, "no device 'cuda:x': cpu, cuda, or cuda:N", "--device", "cuda:x")
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "libcuda.so.1"), "w", encoding="utf-8"):
                pass  # found before any other, and no library
            self.refused(1, "--device cuda: no CUDA driver", "--device", "cuda", LD_LIBRARY_PATH=folder)

    def test_ranks_that_differ_are_told(self):
        with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
            script.write('device=cpu; [ "$DUNLIN_RANK" = 1 ] && device=cuda; exec "$@" --device $device\n')
            script.flush()
            job = Job([RUN, "-n", 2, "sh", script.name, CNN, *TRAINING], env=GPU)
            self.assertNotEqual(job.wait(), 0)
            self.assertRegex(job.text(), "options or data: --device: rank 0 has cpu, rank 1 has cuda")


if __name__ == "__main__":
    unittest.main()
