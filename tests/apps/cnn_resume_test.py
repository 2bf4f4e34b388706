"""dunlin-cnn continues from checkpoints with any number of workers, whatever the method is."""

import os
import struct
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import CNN_IMAGES, Job, JobTest, events, some, thorough  # noqa: E402

RUN, CNN = map(os.path.abspath, sys.argv[1:3])
del sys.argv[1:3]

# 300 images in batches of 4. The batches of each worker in an epoch, by the number of workers:
EPOCH = {1: 75, 2: 37, 3: 25, 4: 18, 5: 15}
TRAINING = [*CNN_IMAGES, "--batch-size", 4, "--learning-rate", 0.03, "--momentum", 0.5, "--threads", 1, "--quiet"]
SAVED_EPOCHS = 2
METHODS = {  # name -> options, parameter servers, multiples of which iterations are
    "all-reduce": ([], 0, 1),
    "straggler-ring": ([], 0, 1),
    "parameter-server": ([], 1, 1),
    "async-parameter-server": (["--learning-rate", 0.02], 1, 1),
    "ad-psgd": (["--graph", "bidirectional-ring"], 0, 1),
    "local-sgd": (["--section-length", 4], 0, 4),
    "stochastic": (["--graph", "complete"], 0, 1),
    "stochastic ": (["--graph", "complete", "--sync", "async"], 0, 1),
    "partial": (["--group-size", 2], 0, 1),
    "partial ": (["--group-size", 2, "--groups", "static"], 0, 8),
}
QUICK = ("parameter-server", "partial ")  # the others go to thorough tests
REPEATABLE = ("all-reduce", "parameter-server", "local-sgd", "stochastic")


class Resume(JobTest):
    def setUp(self):
        super().setUp()
        self.base = self.path("ckpt")

    def job(self, ranks, *options, **how):
        return self.final([RUN, "-n", ranks, CNN, *TRAINING, *options], **how)

    def save(self, workers, *options, servers=0, epochs=SAVED_EPOCHS):
        return self.job(workers + servers, "--epochs", epochs, "--checkpoint", self.base, *options)

    def config(self):
        return events(self.path("run.jsonl"), "config")[-1]

    def vectors(self, name):
        """Parameters, velocity and running statistics of a checkpoint, as bytes; its layout is checkpoint.cc's."""
        with open(self.path(name), "rb") as file:
            content = file.read()
        at = 8 + 4 + 4 + 4 + 8 + 8
        at += 4 + struct.unpack_from("<I", content, at)[0] + 3 * 8
        vectors = []
        for _ in range(3):
            size = struct.unpack_from("<I", content, at)[0]
            vectors.append(content[at + 4:at + 4 + size])
            at += 4 + size
        self.assertEqual(at + 32, len(content))
        return vectors

    def check_resumes(self, method, workers, now, *options, servers=0, step=1):
        options = ["--method", method.strip(), *options]
        saved = self.save(workers, *options, servers=servers)
        # Nothing is left to do, so that the models are those that the workers begin with.
        begun = self.job(now + servers, "--epochs", SAVED_EPOCHS, "--resume", self.base, *options)
        first = self.config()["first_iteration"]
        # Where workers end together after several iterations only, they may have gone on beyond the planned one.
        passes = saved["iterations"] / EPOCH[workers]
        self.assertLessEqual(abs(first - passes * EPOCH[now]), step / 2)
        self.assertEqual(first % step, 0)
        self.assertLess(abs(begun["mean_test_loss"] - saved["mean_test_loss"]), 0.25 * saved["mean_test_loss"] + 0.05)
        # An epoch more.
        epochs = first / EPOCH[now] + 1
        resumed = self.job(now + servers, "--epochs", epochs, "--resume", self.base, *options)
        self.assertEqual(self.config()["first_iteration"], first)
        self.assertGreaterEqual(resumed["iterations"], first + EPOCH[now])
        # They agree on the end within that many iterations, and then end after as many.
        self.assertLess(resumed["iterations"], first + EPOCH[now] + 1 + 2 * step)
        self.assertGreater(resumed["mean_test_accuracy"], 0.5)
        # The course of other methods depends on which worker is faster.
        if method in REPEATABLE:
            self.assertLess(resumed["mean_test_loss"], 1.25 * saved["mean_test_loss"] + 0.05)

    def test_all_reduce_with_more_fewer_and_a_single_worker(self):
        for workers, now in some(((4, 2), (2, 5), (4, 1)), 1):
            with self.subTest(workers=workers, now=now):
                self.check_resumes("all-reduce", workers, now)
                for name in os.listdir(self.folder.name):
                    os.remove(self.path(name))

    def test_learning_rates_follow_the_epochs(self):
        options = ["--decay", 0.5, "--report-every", 1]
        self.save(4, *options)
        self.assertEqual(events(self.path("run.jsonl"), "progress")[-1]["iteration"], 36)
        self.job(2, *options, "--epochs", 4, "--resume", self.base)
        resumed = [line for line in events(self.path("run.jsonl"), "progress") if line["iteration"] > 36]
        self.assertEqual([line["iteration"] for line in resumed], list(range(75, 149)))
        for line in resumed:
            self.assertAlmostEqual(line["learning_rate"], 0.03 * 0.5**int(line["iteration"] / 37), 12)

    # All workers have the same model then, and mean models have its bits.
    def test_all_reduce_keeps_the_bits_of_model_and_velocity(self):
        self.save(4)
        saved = [self.vectors(f"ckpt.{rank}-of-4.36") for rank in range(4)]
        self.assertTrue(all(one == saved[0] for one in saved))
        self.assertTrue(any(saved[0][1]))
        for now, last in ((1, 150), (3, 50), (5, 30)):
            self.job(now, "--epochs", SAVED_EPOCHS, "--resume", self.base, "--checkpoint", self.path(f"now-{now}"))
            for rank in range(now):
                self.assertEqual(self.vectors(f"now-{now}.{rank}-of-{now}.{last}"), saved[0])

    def test_as_many_workers_continue_bit_for_bit(self):
        options = ["--epochs", 2, "--batch-norm", "--augment", "--checkpoint", self.base, "--checkpoint-every", 20]
        whole = self.job(3, *options)
        straight = [self.vectors(f"ckpt.{rank}-of-3.50") for rank in range(3)]
        for rank in range(3):
            os.remove(f"{self.base}.{rank}-of-3.50")
        resumed = self.job(3, *options, "--resume", self.base)
        self.assertEqual(self.config()["first_iteration"], 40)
        self.assertEqual(resumed["test_loss"], whole["test_loss"])
        self.assertEqual([self.vectors(f"ckpt.{rank}-of-3.50") for rank in range(3)], straight)

    def test_running_statistics_are_averaged(self):
        self.save(4, "--batch-norm", epochs=1)
        self.job(2, "--batch-norm", "--epochs", 1, "--resume", self.base, "--checkpoint", self.path("now"))
        saved = [self.floats(f"ckpt.{rank}-of-4.18") for rank in range(4)]
        self.assertNotEqual(saved[0], saved[2])
        for rank in range(2):
            mean = [(one + other) / 2 for one, other in zip(saved[rank], saved[rank + 2], strict=True)]
            for found, expected in zip(self.floats(f"now.{rank}-of-2.37"), mean, strict=True):
                self.assertAlmostEqual(found, expected, delta=1e-6 * abs(expected))

    def floats(self, name):
        statistics = self.vectors(name)[2]
        self.assertGreater(len(statistics), 0)
        return struct.unpack(f"<{len(statistics) // 4}f", statistics)

    def test_what_lacks_is_named(self):
        self.save(4, "--iterations", 6, "--checkpoint-every", 6)
        os.remove(f"{self.base}.3-of-4.6")
        for now, reader in ((2, 1), (4, 3), (5, 3)):
            job = Job([RUN, "-n", now, CNN, *TRAINING, "--resume", self.base])
            self.assertIn(job.wait(), (1, 2), job.text())
            self.assertRegex(job.text(), "there is no complete checkpoint '.*ckpt': iteration 6, saved by 4 ranks: "
                                         rf"rank {reader} on \S+ does not find \S+ckpt.3-of-4.6")

    def test_other_settings_are_refused(self):
        self.save(2, "--iterations", 2)
        job = Job([RUN, "-n", 3, CNN, *TRAINING, "--resume", self.base, "--seed", 2])
        self.assertIn(job.wait(), (1, 2), job.text())
        self.assertRegex(job.text(), "the checkpoint was made with settings small.*seed 1.*this run has small.*seed 2")


def resume_test(method, workers, now):
    options, servers, step = METHODS[method]
    test = lambda self: self.check_resumes(method, workers, now, *options, servers=servers, step=step)  # noqa: E731
    return test if method in QUICK else thorough(test)


# Every other method with more workers, and the others with fewer, to save time.
for number, each in enumerate(METHODS):
    if each != "all-reduce":
        before, after = ((4, 2), (2, 4))[number % 2]
        name = each.strip().replace("-", "_") + (f"_{METHODS[each][0][-1]}" if each.endswith(" ") else "")
        setattr(Resume, f"test_{name}_from_{before}_to_{after}", resume_test(each, before, after))


if __name__ == "__main__":
    unittest.main(verbosity=2)
