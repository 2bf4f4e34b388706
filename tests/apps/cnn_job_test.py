"""dunlin-cnn as whole jobs: every method learns, interrupted runs continue, wrong requests and deaths are reported."""

import glob
import json
import os
import signal
import struct
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import CNN_IMAGES as DATA, Job, JobTest, await_progress, events, reports, some, thorough  # noqa: E402

RUN, CNN, PLOT = map(os.path.abspath, sys.argv[1:4])
del sys.argv[1:4]

BATCH = 4
TRAINING = [*DATA, "--batch-size", BATCH, "--learning-rate", 0.03, "--momentum", 0.5, "--threads", 1, "--quiet"]
METHODS = {  # name -> options, ranks
    "all-reduce": ([], 3),
    "straggler-ring": ([], 3),
    "parameter-server": ([], 3),
    "async-parameter-server": (["--learning-rate", 0.02], 3),
    "ad-psgd": (["--graph", "bidirectional-ring"], 4),
    "local-sgd": (["--section-length", 4], 3),
    "stochastic": (["--graph", "root-expander"], 4),
    "partial": (["--group-size", 2], 4),
}


class Jobs(JobTest):
    def run_job(self, ranks, *options, **how):
        return self.final([RUN, "-n", ranks, CNN, *options], **how)

    def lines(self, kind, json="run.jsonl"):
        return events(self.path(json), kind)

    def start(self, ranks, *options, json="run.jsonl"):
        job = Job([RUN, "-n", ranks, "--keep-going", CNN, *options, "--json-out", self.path(json)])
        self.addCleanup(job.kill)
        return job

    def check_learns(self, method, ranks, *options):
        final = self.run_job(ranks, *TRAINING, "--epochs", 3, "--method", method, *options)
        config, progress = self.lines("config")[0], self.lines("progress")
        workers = ranks - (1 if "server" in method else 0)
        self.assertEqual(config["method"], method)
        self.assertEqual(config["workers"], workers)
        self.assertGreaterEqual(final["iterations"], config["iterations"])
        # The training loss is not checked, because it is a mean over iterations: that of the second iteration is 40 or
        # more, and raises the mean to the end.
        self.assertLess(final["test_loss"], 0.5 * progress[0]["loss"])
        self.assertGreater(final["test_accuracy"], 0.5)
        self.assertGreater(final["mean_test_accuracy"], 0.5)
        self.assertEqual(len(final["by_rank"]["iterations"]), ranks)
        for rank in range(ranks):
            is_worker = rank < workers
            self.assertEqual(final["by_rank"]["iterations"][rank] > 0, is_worker)
            self.assertEqual(final["by_rank"]["compute_s"][rank] > 0, is_worker)
        self.assertGreater(final["bytes_sent"], 4 * config["parameters"])
        sent = final["by_rank"]["bytes_sent"]
        self.assertEqual(sum(sent), final["bytes_sent"])
        for server in sent[workers:]:  # which answers each gradient with the model
            self.assertGreaterEqual(server, 0.9 * sum(sent[:workers]))
        self.assertGreater(final["iterations_per_s"], 0)
        self.assertAlmostEqual(final["samples_per_s"], BATCH * final["iterations_per_s"], 3)
        for before, after in zip(progress, progress[1:]):
            for field in ("iteration", "time_s", "compute_s", "wait_s", "bytes_sent"):
                self.assertGreaterEqual(after[field], before[field])

    def test_a_single_process_learns(self):
        final = self.final([CNN, *TRAINING, "--epochs", 2, "--evaluate-every", 50])
        self.assertEqual(final["iterations"], 150)
        self.assertEqual(final["stopped_by"], "iterations")
        self.assertGreater(final["test_accuracy"], 0.5)
        self.assertEqual(final["test_accuracy"], final["mean_test_accuracy"])
        self.assertEqual([line["iteration"] for line in self.lines("evaluation")], [50, 100])
        self.assertEqual(self.lines("config")[0]["parameters"], 25578)

    def test_synchronizing_in_every_way_that_asap_compares(self):
        for sync in some(("async", "bsp"), 1):
            with self.subTest(sync):
                self.check_learns("stochastic", 3, "--graph", "complete", "--sync", sync)

    @thorough
    def test_groups_from_every_source(self):
        for groups in ("static", "random", "buffered"):
            with self.subTest(groups):
                self.check_learns("partial", 4, "--group-size", 2, "--groups", groups)

    def test_of_what_is_given_twice_the_last_counts(self):
        final = self.final([CNN, *TRAINING, "--iterations", 7, "--iterations", 2, "--slowdown", "0:0", "--slowdown", "0:1"])
        self.assertEqual(final["iterations"], 2)

    # Averages of gradients over shards: as one worker with all of the batch would have them.
    def test_methods_that_are_the_same_mathematics_agree(self):
        losses = {}
        for method, ranks, extra in (("all-reduce", 2, []), ("parameter-server", 3, []),
                                     ("parameter-server", 4, ["--servers", 2])):
            self.run_job(ranks, *TRAINING, "--iterations", 12, "--report-every", 1, "--method", method, *extra)
            losses[method, ranks] = [line["loss"] for line in self.lines("progress")]
        measure = losses["all-reduce", 2]
        for ours in losses.values():
            self.assertEqual(len(ours), 12)
            for one, other in zip(ours, measure):
                self.assertAlmostEqual(one, other, delta=1e-4 * other)

    def test_the_same_run_gives_the_same_numbers(self):
        courses = []
        for _ in range(2):
            self.run_job(2, *TRAINING, "--iterations", 20, "--report-every", 1, "--model", "small", "--batch-norm",
                         "--augment")
            courses.append([(line["loss"], line["accuracy"]) for line in self.lines("progress")])
        self.assertEqual(courses[0], courses[1])

    def test_what_is_interrupted_goes_on_bit_for_bit(self):
        training = [*TRAINING, "--batch-norm", "--augment", "--decay", 0.5, "--report-every", 1]
        whole = self.run_job(2, *training, "--iterations", 40, "--checkpoint", self.path("whole"))
        course = [line["loss"] for line in self.lines("progress")]
        options = [*training, "--checkpoint", self.path("part"), "--checkpoint-every", 7, "--json-out",
                   self.path("part.jsonl")]
        # Rank 1 dies some time after a checkpoint.
        job = Job([RUN, "-n", 2, CNN, *options, "--iterations", 40, "--slowdown", "0:10"])
        await_progress(job, self.path("part.jsonl"), 18)
        os.kill(job.rank_pid(1), signal.SIGKILL)
        self.assertNotEqual(job.wait(), 0)
        self.assertEqual(len(glob.glob(self.path("part.0-of-2.*"))), 2)
        job = Job([RUN, "-n", 2, CNN, *options, "--iterations", 40, "--resume", self.path("part")])
        self.assertEqual(job.wait(), 0, job.text())
        again = events(self.path("part.jsonl"), "final")[-1]
        begin = events(self.path("part.jsonl"), "config")[-1]["first_iteration"]
        self.assertGreaterEqual(begin, 14)
        self.assertEqual(begin % 7, 0)
        resumed = events(self.path("part.jsonl"), "progress")[-(40 - begin):]
        self.assertEqual([line["iteration"] for line in resumed], list(range(begin + 1, 41)))
        self.assertEqual([line["loss"] for line in resumed], course[begin:])
        for field in ("loss", "accuracy", "test_loss", "test_accuracy", "mean_test_loss"):
            self.assertEqual(again[field], whole[field], field)
        for rank in range(2):
            self.assertEqual(*(self.state(f"{name}.{rank}-of-2.40") for name in ("whole", "part")))

    def state(self, name):
        """Parameters, velocity and running statistics of a checkpoint, as bytes; its layout is checkpoint.cc's."""
        with open(self.path(name), "rb") as file:
            content = file.read()
        at = 8 + 4 + 4 + 4 + 8 + 8
        at += 4 + struct.unpack_from("<I", content, at)[0] + 3 * 8
        self.assertGreater(len(content) - at, 4 * 2 * 25000)
        return content[at:-32]

    def test_ctrl_c_ends_with_a_checkpoint(self):
        for method, ranks, extra in some((("stochastic", 2, ["--sync", "async"]), ("parameter-server", 3, []),
                                          ("all-reduce", 2, []), ("async-parameter-server", 3, [])), 2):
            with self.subTest(method):
                name, json_name = self.path(method), f"{method}.jsonl"
                options = [*TRAINING, "--report-every", 1, "--method", method, *extra]
                job = self.start(ranks, *options, "--iterations", 10**6, "--checkpoint", name, json=json_name)
                await_progress(job, self.path(json_name))
                os.kill(job.process.pid, signal.SIGINT)
                self.assertEqual(job.wait(), 130, job.text())
                final = self.lines("final", json_name)[0]
                self.assertIn(final["stopped_by"], ("signal", "others"))
                self.assertEqual(len(glob.glob(f"{name}.0-of-2.{final['iterations']}")), 1)
                last = final["iterations"] + 3
                resumed = self.run_job(ranks, *options, "--iterations", last, "--resume", name)
                self.assertEqual(self.lines("config")[-1]["first_iteration"], final["iterations"])
                self.assertEqual(resumed["iterations"], last)

    def test_a_target_is_reached_or_missed(self):
        for method, ranks, extra in some((("all-reduce", 2, []), ("ad-psgd", 2, [])), 1):
            with self.subTest(method):
                final = self.run_job(ranks, *TRAINING, "--epochs", 50, "--method", method, *extra, "--target-loss", 1.2,
                                     "--report-every", 1)
                self.assertEqual(final["stopped_by"], "target")
                losses = [line["loss"] for line in self.lines("progress")]
                self.assertLessEqual(min(losses), 1.2)
                self.assertGreater(min(losses[:-3]), 1.2)
        final = self.run_job(2, *TRAINING, "--iterations", 3, "--target-loss", 0.01, expect=3)
        self.assertEqual(final["stopped_by"], "iterations")

    def test_it_ends_after_the_duration(self):
        final = self.run_job(2, *TRAINING, "--epochs", 1000, "--duration", 1.5)
        self.assertIn(final["stopped_by"], ("duration", "others"))
        self.assertGreaterEqual(max(final["by_rank"]["time_s"]), 1.5)
        self.assertEqual(len(set(final["by_rank"]["iterations"])), 1)

    def test_a_slow_worker_sleeps(self):
        fast = self.run_job(2, *TRAINING, "--iterations", 30)
        slow = self.run_job(2, *TRAINING, "--iterations", 30, "--slowdown", "1:20")
        # All workers wait while worker 1 sleeps, so that no worker is ahead of another.
        self.assertGreater(slow["time_s"], 20 * slow["by_rank"]["compute_s"][1])
        self.assertGreater(slow["time_s"], fast["time_s"])
        self.assertGreater(slow["by_rank"]["wait_s"][0], slow["by_rank"]["wait_s"][1])

    def test_grey_images_of_idx_files(self):
        pixels = bytes((40 * (i % 3) + j % 50) % 256 for i in range(90) for j in range(28 * 28))
        for name, content in (("images", struct.pack(">IIII", 0x803, 90, 28, 28) + pixels),
                              ("labels", struct.pack(">II", 0x801, 90) + bytes(i % 3 for i in range(90)))):
            with open(self.path(name), "wb") as file:
                file.write(content)
        files = [self.path("images"), self.path("labels")]
        final = self.run_job(2, "--train", *files, "--test", *files, "--batch-size", 9, "--epochs", 4, "--quiet")
        self.assertEqual(self.lines("config")[0]["classes"], 3)
        self.assertGreater(final["test_accuracy"], 0.9)

    @thorough
    def test_all_networks_train(self):
        for model, parameters in (("resnet-20", 269722), ("vgg-11", 9225610)):
            with self.subTest(model):
                self.run_job(2, *DATA, "--test-images", 8, "--batch-size", 2, "--iterations", 2, "--quiet",
                             "--learning-rate", 0.001, "--model", model)
                self.assertEqual(self.lines("config")[0]["parameters"], parameters)

    def test_standard_output_is_json_alone_where_it_is_asked_for(self):
        command = [CNN, *map(str, DATA), "--iterations", "3", "--json"]
        done = subprocess.run(command, text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        kinds = [json.loads(line)["event"] for line in done.stdout.splitlines()]
        self.assertEqual(kinds, ["config"] + 3 * ["progress"] + ["final"])
        told = Job([CNN, *DATA, "--iterations", 3])
        self.assertEqual(told.wait(), 0, told.text())
        for part in ("25578 parameters", "images/s", "test, rank 0's model"):
            self.assertIn(part, told.text())

    def test_a_loss_that_is_no_number_is_told(self):
        job = self.start(2, *TRAINING, "--learning-rate", 1e6, "--weight-decay", 1e3,
                         "--iterations", 200)
        self.assertEqual(job.wait(), 1, job.text())
        self.assertRegex(job.text(), r"iteration \d+ \(a smaller --learning-rate may help\): the loss is not a finite")

    def test_a_killed_rank_is_named_by_all_others(self):
        for method in some(("all-reduce", "stochastic"), 1):
            with self.subTest(method):
                name = f"{method}.jsonl"
                job = self.start(4, *TRAINING, "--iterations", 10**6, "--report-every", 1, "--method", method,
                                 json=name)
                await_progress(job, self.path(name))
                os.kill(job.rank_pid(2), signal.SIGKILL)
                killed_at = time.monotonic()
                self.assertNotEqual(job.wait(), 0)
                found = reports(job, "error: .*rank 2")
                self.assertEqual(sorted(found), [0, 1, 3], job.text())
                for moment, line in found.values():
                    self.assertLess(moment - killed_at, 30, line)

    def test_survivors_conclude_where_the_method_goes_on_without_the_dead(self):
        for method, killed, extra in some((("partial", 2, ["--group-size", 2]), ("async-parameter-server", 1, []),
                                           ("ad-psgd", 0, [])), 1):
            with self.subTest(method):
                name = f"{method}.jsonl"
                job = self.start(4, *TRAINING, "--iterations", 1200, "--report-every", 1,
                                 "--learning-rate", 0.01, "--method", method, *extra, json=name)
                # A worker that forms groups with the dead one has exchanged models with it before.
                await_progress(job, self.path(name), 50)
                os.kill(job.rank_pid(killed), signal.SIGKILL)
                self.assertEqual(job.wait(), 0, job.text())
                final = self.lines("final", name)[0]
                self.assertEqual(final["lost_ranks"], [killed])
                self.assertEqual(final["by_rank"]["iterations"][killed], 0)
                self.assertEqual("mean_test_loss" in final, killed != 0)

    def test_a_resumed_run_leaves_no_checkpoints_of_another_course(self):
        name = self.path("part")
        options = [*TRAINING, "--checkpoint", name, "--checkpoint-every", 4]
        self.run_job(2, *options, "--iterations", 14)
        for rank in range(2):
            self.assertEqual(self.iterations_of(name, rank), [12, 14])
        os.remove(f"{name}.1-of-2.14")
        self.run_job(2, *options, "--iterations", 13, "--resume", name)
        self.assertEqual(self.lines("config")[-1]["first_iteration"], 12)
        for rank in range(2):
            self.assertEqual(self.iterations_of(name, rank), [12, 13])
        self.run_job(2, *options, "--iterations", 17, "--resume", name)
        for rank in range(2):
            self.assertEqual(self.iterations_of(name, rank), [16, 17])

    def iterations_of(self, name, rank):
        return sorted(int(path.rsplit(".", 1)[1]) for path in glob.glob(f"{name}.{rank}-of-2.*"))

    @thorough
    def test_static_groups_end_together_and_go_on_together(self):
        name = self.path("part")
        options = [*TRAINING, "--method", "partial", "--groups", "static", "--group-size", 2, "--checkpoint", name,
                   "--checkpoint-every", 8]
        final = self.run_job(4, *options, "--iterations", 10**6, "--duration", 1)
        self.assertEqual(len(set(final["by_rank"]["iterations"])), 1)
        last = final["iterations"]
        self.assertEqual(last % 8, 0)
        os.remove(f"{name}.2-of-4.{last}")
        self.run_job(4, *options, "--iterations", last, "--resume", name)
        self.assertEqual(self.lines("config")[-1]["first_iteration"], last - 8)

    def test_wrong_requests_are_told(self):
        bad, cut = self.path("bad"), self.path("cut")
        for path, content in ((bad, b"\xff" * 3073), (cut, b"\0" * 4000)):
            with open(path, "wb") as file:
                file.write(content)
        for command, code, text in (
                ([CNN, "--train", bad], 2, "neither IDX nor CIFAR-10"),
                ([RUN, "-n", 2, CNN, "--train", cut], 2, "4000 bytes"),
                ([CNN, "--train", self.path("absent")], 2, "absent"),
                ([CNN, "--generate", "--train", bad], 2, "--train"),
                ([CNN, "--test", bad], 2, "--train"),
                ([CNN, *DATA, "--model", "vgg"], 2, "vgg-11"),
                ([CNN, *DATA, "--method", "pigeon"], 2, "pigeon"),
                ([CNN, *DATA, "--sync", "pigeon"], 2, "pigeon"),
                ([CNN, *DATA, "--groups", "pigeon"], 2, "pigeon"),
                ([CNN, *DATA, "--slowdown", "pigeon"], 2, "pigeon"),
                ([RUN, "-n", 2, CNN, *DATA, "--slowdown", "2:5"], 2, "worker 2"),
                ([RUN, "-n", 2, CNN, *DATA, "--method", "stochastic", "--graph", "pigeon"], 2, "pigeon"),
                ([RUN, "-n", 2, CNN, *DATA, "--method", "parameter-server", "--servers", 2], 2, "server"),
                ([CNN, *DATA, "--learning-rate", "nan"], 2, "--learning-rate"),
                ([CNN, *DATA, "--momentum", -1], 2, "--momentum"),
                ([CNN, "--images", 10**12], 2, "more than half of its memory"),
                ([RUN, "-n", 2, CNN, *DATA, "--method", "local-sgd", "--section-length", 9, "--iterations", 8], 2,
                 "--section-length 9"),
                ([RUN, "-n", 2, CNN, *DATA, "--method", "partial", "--groups", "static", "--section-length", 2,
                  "--iterations", 15], 2, "after 16 iterations"),
                ([RUN, "-n", 2, CNN, *DATA, "--method", "local-sgd", "--section-length", 4, "--checkpoint-every", 6], 2,
                 "--checkpoint-every 6"),
                ([CNN, *DATA, "--batch-size", 0], 2, "--batch-size"),
                ([CNN, *DATA, "--batch-size", 301], 2, "need 301"),
                ([CNN, *DATA, "--iterations", -3], 2, "--iterations"),
                ([CNN, *DATA, "--noise", 300], 2, "noise"),
                ([CNN, *DATA, "--side", 40], 2, "side"),
                ([RUN, "-n", 2, CNN, *DATA, "--resume", self.path("none")], 2, "no checkpoint"),
                ([CNN, *DATA, "--iterations", 2, "--checkpoint", self.path("no/such")], 2, "no/such"),
                ([CNN, *DATA, "--json-out", self.path("no/such")], 2, "no/such")):
            with self.subTest(command[1:]):
                job = Job(command)
                self.assertEqual(job.wait(), code, job.text())
                self.assertIn(text, job.text())

    def test_checkpoints_of_another_run_are_refused(self):
        self.run_job(2, *TRAINING, "--iterations", 2, "--checkpoint", self.path("one"))
        job = Job([RUN, "-n", 2, CNN, *TRAINING, "--iterations", 4, "--resume", self.path("one"), "--batch-norm"])
        self.assertEqual(job.wait(), 2, job.text())
        self.assertIn("the checkpoint was made with settings small", job.text())

    def test_ranks_with_other_options_are_told(self):
        for common, first, second, told in (
                ([], ["--decay", 0.5], ["--decay", 0.25], "--decay: rank 0 has 0.5, rank 1 has 0.25"),
                ([], ["--resume", self.path("nothing")], [], "--resume: rank 0 has given, rank 1 has not given"),
                (["--method", "local-sgd"], ["--section-length", 2], ["--section-length", 3],
                 "--section-length: rank 0 has 2, rank 1 has 3")):
            with self.subTest(told):
                self.check_difference([RUN, CNN], [*TRAINING, "--iterations", 6, *common], first, second, told)
        # What the method does not use is not compared.
        job = Job([RUN, "-n", 2, "sh", "-c", 'exec "$@" --depth $((DUNLIN_RANK + 1))', "sh", CNN, *TRAINING, "--iterations", 2])
        self.assertEqual(job.wait(), 0, job.text())

    def test_ranks_with_different_images_find_out(self):
        job = Job([RUN, "-n", 2, "sh", "-c", f"exec {CNN} --generate --images 100 --seed $DUNLIN_RANK"])
        self.assertEqual(job.wait(), 2, job.text())
        self.assertRegex(job.text(), "options or data: --seed: rank 0 has 0, rank 1 has 1; images .*: rank 0 has [0-9a-f]+, ")

    def test_a_gpu_that_is_not_there(self):
        job = Job([CNN, *DATA, "--iterations", 1, "--device", "cuda", "--quiet"])
        if job.wait() == 0:
            self.skipTest("there is a GPU here")
        self.assertEqual(job.process.returncode, 1, job.text())
        self.assertIn("--device cuda: no CUDA driver", job.text())

    def test_plots(self):
        for name, ranks in (("one", 1), ("two", 2)):
            self.run_job(ranks, *TRAINING, "--iterations", 60, json=f"{name}.jsonl")
        files = [f"{name}={self.path(name)}.jsonl" for name in ("one", "two")]
        done = subprocess.run([sys.executable, PLOT, "cnn", "--table", "--target", "2.2", "--baseline", "one", *files],
                              text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = done.stdout.splitlines()
        self.assertEqual(len(rows), 3)
        self.assertIn("speed to loss, relative", rows[0])
        self.assertEqual(rows[1].split()[-2:], ["1.00", "1.00"])


def learning_test(method):
    options, ranks = METHODS[method]
    return lambda self: self.check_learns(method, ranks, *options)


for each in METHODS:
    setattr(Jobs, f"test_learning_by_{each.replace('-', '_')}", learning_test(each))


if __name__ == "__main__":
    unittest.main(verbosity=2)
