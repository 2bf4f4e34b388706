"""dunlin-svm continues from checkpoints with any number of ranks, and says why where it can't."""

import filecmp
import os
import shutil
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import Job, JobTest, events  # noqa: E402

RUN, SVM = sys.argv[1:3]
del sys.argv[1:3]

ROWS = 6000


def data(rows=ROWS, nonzeros=40):
    return ["--generate", "--rows", rows, "--features", 8000, "--nonzeros", nonzeros, "--quiet", "--deferred-eval"]


DATA = data()
SAVED_EPOCHS = 4
SAVED_RANKS = 4
PASS = 15  # exchanges of 100 examples of each of four ranks
# The exchanges of a pass where the number of ranks is another.
PASSES = {1: 60, 2: 30, 5: 12}


class Resume(JobTest):
    def setUp(self):
        super().setUp()
        self.base = self.path("ckpt")

    def job(self, ranks, *options, **how):
        return self.final([RUN, "-n", ranks, SVM, *DATA, *options], **how)

    def save(self, *options, ranks=SAVED_RANKS, epochs=SAVED_EPOCHS):
        return self.job(ranks, "--epochs", epochs, "--checkpoint", self.base, *options)

    def resume(self, ranks, epochs, *options):
        return self.job(ranks, "--epochs", epochs, "--resume", self.base, *options)

    def refusal(self, ranks, *options, data=DATA):
        """What a job says that ends without training."""
        job = Job([RUN, "-n", ranks, SVM, *data, "--epochs", 8, "--resume", self.base, *options])
        # The job's exit code is that of the rank that ends first. It may only have learned that another one has left.
        self.assertIn(job.wait(), (1, 2), job.text())
        return job.text()

    def names(self):
        return sorted(name for name in os.listdir(self.folder.name) if name.startswith("ckpt."))

    def test_what_is_left_ends_after_the_same_passes(self):
        saved = self.save()
        self.assertEqual(saved["own"]["exchanges"], SAVED_EPOCHS * PASS)
        for ranks, exchanges in PASSES.items():
            with self.subTest(ranks):
                resumed = self.resume(ranks, 6.5)
                self.assertEqual(resumed["own"]["exchanges"], 2.5 * exchanges)
                self.assertEqual(resumed["examples"], 2.5 * ROWS)
        # A pass of 7 ranks is 8.58 exchanges: 4 passes are 34.32, and 8 are 68.64.
        self.assertEqual(self.resume(7, 8)["own"]["exchanges"], 69 - 34)

    def test_the_models_are_taken_over(self):
        for sync in ("notify-ack", "bsp", "async"):
            saved = self.save("--sync", sync, "--graph", "ring")
            for ranks in (1, 2, 5):
                with self.subTest(sync=sync, ranks=ranks):
                    # Nothing is left to do, so that the models are those that the ranks begin with.
                    begun = self.resume(ranks, SAVED_EPOCHS, "--sync", sync)
                    self.assertEqual(begun["own"]["exchanges"], 0)
                    # A model of zeros has the objective 1.
                    self.assertLess(begun["objective"], 0.5)
                    # In ASYNC, the models depend on which worker is faster.
                    if sync != "async":
                        self.assertLess(abs(begun["objective"] - saved["objective"]), 0.1 * saved["objective"])

    def test_a_resumed_run_ends_where_an_uninterrupted_one_does(self):
        whole = self.job(SAVED_RANKS, "--epochs", 8)["objective"]
        self.save()
        for ranks in (1, 2, 5):
            with self.subTest(ranks):
                self.assertLess(abs(self.resume(ranks, 8)["objective"] - whole), 0.05 * whole)
        for name in self.names():
            os.remove(self.path(name))
        self.save(ranks=2)
        self.assertLess(abs(self.resume(5, 8)["objective"] - whole), 0.05 * whole)

    def test_exchanges_may_get_another_length(self):
        self.save("--sync-every", 100)
        for every in (50, 200):
            with self.subTest(every):
                resumed = self.resume(SAVED_RANKS, 6, "--sync-every", every)
                self.assertEqual(resumed["own"]["exchanges"], 2 * PASS * 100 / every)
                self.assertEqual(resumed["examples"], 2 * ROWS)
        before = self.names()
        self.assertIn("another path for --checkpoint",
                      self.refusal(SAVED_RANKS, "--sync-every", 200, "--checkpoint", self.base))
        self.assertEqual(self.names(), before)

    def test_averages_are_taken_over(self):
        saved = self.save("--average")
        for ranks in (2, 5):
            begun = self.resume(ranks, SAVED_EPOCHS, "--average")
            self.assertLess(abs(begun["objective"] - saved["objective"]), 0.05 * saved["objective"])
            self.assertLess(self.resume(ranks, 8, "--average")["objective"], 1.01 * begun["objective"])
        self.assertIn("averaging on, this run has off", self.refusal(2))

    def test_as_many_ranks_continue_bit_for_bit(self):
        # 4 passes of 3 ranks are 80 exchanges.
        run = [RUN, "-n", 3, SVM, *DATA, "--epochs", 4, "--checkpoint", self.base, "--checkpoint-every", 20]
        self.final(run)
        self.assertEqual(self.names(), [f"ckpt.{rank}-of-3.{exchange}" for rank in range(3) for exchange in (60, 80)])
        for rank in range(3):
            shutil.move(f"{self.base}.{rank}-of-3.80", self.path(f"straight.{rank}"))
        self.assertEqual(self.final([*run, "--resume", self.base])["own"]["exchanges"], 20)
        for rank in range(3):
            self.assertTrue(filecmp.cmp(f"{self.base}.{rank}-of-3.80", self.path(f"straight.{rank}"), shallow=False), rank)

    def test_skewed_shards_are_the_same_again(self):
        skew = ["--shard-skew", "label:0.8"]
        run = [RUN, "-n", 3, SVM, *DATA, *skew, "--epochs", 4, "--checkpoint", self.base, "--checkpoint-every", 20]
        self.final(run)
        shutil.move(f"{self.base}.0-of-3.80", self.path("straight"))
        self.assertEqual(self.final([*run, "--resume", self.base])["own"]["exchanges"], 20)
        self.assertTrue(filecmp.cmp(f"{self.base}.0-of-3.80", self.path("straight"), shallow=False))
        # Each rank would have other rows. Another number of ranks has that anyway, and all rows are there.
        self.assertIn("the same --shard-skew?", self.refusal(3, "--shard-skew", "feature"))
        for other in (skew, []):
            self.assertEqual(self.resume(2, 6, *other)["own"]["exchanges"], 2 * PASSES[2])

    def test_a_run_changes_its_number_of_ranks_again_and_again(self):
        self.save("--checkpoint-every", 30)
        epochs = SAVED_EPOCHS
        for ranks in (2, 5, 1, 4):
            epochs += 2
            run = self.resume(ranks, epochs, "--checkpoint", self.base)
            self.assertEqual(run["examples"], 2 * ROWS, ranks)
        # The last two of each rank of each run.
        self.assertEqual(len(self.names()), 2 * (4 + 2 + 5 + 1 + 4))

    def test_files_of_a_course_that_is_given_up_are_removed(self):
        run = [RUN, "-n", 2, SVM, *DATA, "--checkpoint", self.base, "--checkpoint-every", 20]
        self.final([*run, "--epochs", 2])  # 60 exchanges
        os.remove(f"{self.base}.1-of-2.60")
        self.final([*run, "--epochs", 1.5, "--resume", self.base])
        self.assertEqual(self.names(), [f"ckpt.{rank}-of-2.{exchange}" for rank in range(2) for exchange in (40, 45)])

    def test_files_that_lack_are_named(self):
        self.save("--checkpoint-every", 60)
        os.remove(f"{self.base}.2-of-4.60")
        for ranks, reader in ((2, 0), (4, 2), (5, 2)):
            text = self.refusal(ranks)
            self.assertRegex(text, "there is no complete checkpoint '.*ckpt': iteration 60, saved by 4 ranks: "
                                   rf"rank {reader} on \S+ does not find \S+ckpt.2-of-4.60")

    def test_damaged_files_are_named(self):
        self.save("--checkpoint-every", 60)
        with open(f"{self.base}.1-of-4.60", "r+b") as file:
            file.truncate(5000)
        for ranks in (2, 4, 5):
            self.assertRegex(self.refusal(ranks), "no complete checkpoint '.*ckpt': iteration 60, saved by 4 ranks: "
                                                  r"\S+ckpt.1-of-4.60: the checkpoint is cut short")

    def test_an_earlier_checkpoint_is_taken_where_the_last_one_is_not_complete(self):
        self.save("--checkpoint-every", 45)
        os.remove(f"{self.base}.0-of-4.60")
        job = Job([RUN, "-n", 2, SVM, *DATA, "--epochs", 4, "--resume", self.base, "--json-out", self.path("run.jsonl")])
        self.assertEqual(job.wait(), 0, job.text())
        self.assertRegex(job.text(), r"passing over an incomplete checkpoint '.*ckpt': iteration 60, saved by 4 ranks: "
                                     r"rank 0 on \S+ does not find \S+ckpt.0-of-4.60")
        # 45 exchanges of four ranks are 90 of two.
        self.assertEqual(self.resume(2, 4)["own"]["exchanges"], 30)

    def test_files_of_several_runs_are_not_mixed(self):
        self.save("--checkpoint-every", 60)
        shutil.copy(f"{self.base}.3-of-4.60", self.path("kept"))
        self.save("--checkpoint-every", 60)
        shutil.move(self.path("kept"), f"{self.base}.3-of-4.60")
        self.assertRegex(self.refusal(2), r"iteration 60, saved by 4 ranks: \S+ckpt.3-of-4.60 is of another run")

    def test_files_under_other_names_are_not_taken(self):
        self.save("--checkpoint-every", 60, ranks=2, epochs=2)
        for rank in range(2):
            os.rename(f"{self.base}.{rank}-of-2.60", f"{self.base}.{rank}-of-3.60")
        self.assertRegex(self.refusal(2), r"ckpt.0-of-3.60 has another name than it was saved under, which ended in "
                                          r"\.0-of-2\.60")

    def test_ranks_without_a_common_folder_name_what_lacks_where(self):
        for rank in range(4):
            os.mkdir(self.path(f"host-{rank}"))
        script = f'exec {SVM} "$@" {self.folder.name}/host-$DUNLIN_RANK/ckpt'

        def run(ranks, epochs, option):
            return [RUN, "-n", ranks, "sh", "-c", script, "sh", *DATA, "--json-out", self.path("run.jsonl"), "--epochs",
                    epochs, option]
        self.assertEqual(Job(run(4, 1, "--checkpoint")).wait(), 0)
        # As many ranks as have saved need their own files only.
        self.assertEqual(Job(run(4, 2, "--resume")).wait(), 0)
        self.assertEqual(events(self.path("run.jsonl"), "final")[-1]["own"]["exchanges"], PASS)
        shutil.move(self.path("host-2/ckpt.2-of-4.15"), self.path("host-1"))
        job = Job(run(2, 2, "--resume"))
        self.assertNotEqual(job.wait(), 0)
        self.assertRegex(job.text(), r"rank 0 on \S+ does not find \S+host-\d/ckpt.2-of-4.15, but rank 1 on \S+ does")

    def test_other_data_or_options_are_refused(self):
        self.save(epochs=1)
        for change, what in ((["--seed", 2], "seed 1, this run has 2"),
                             (["--lambda", 0.01], "lambda 0.0001, this run has 0.01"),
                             (["--eta0", 0.25], "eta0 1, this run has 0.25")):
            for ranks in (2, 5):
                self.assertIn(f"the checkpoint was made with {what}", self.refusal(ranks, *change))
        for other, what in ((data(rows=5900), "rows of all shards 6000, this run has 5900"),
                            (data(nonzeros=39), "data [0-9a-f]{16}, this run has [0-9a-f]{16}")):
            for ranks in (2, 5):
                self.assertRegex(self.refusal(ranks, data=other), f"the checkpoint was made with {what}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
