"""dunlin-svm as whole jobs: the result does not depend on connection, synchronization, start or interruption."""

import filecmp
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import Job, JobTest, events  # noqa: E402
from ports import free_ports  # noqa: E402

RUN, SVM = sys.argv[1:3]
del sys.argv[1:3]

# About a tenth of RCV1: a run takes a second or two.
DATA = ["--generate", "--rows", 6000, "--features", 8000, "--nonzeros", 40, "--quiet", "--deferred-eval"]


class Jobs(JobTest):
    def test_eight_workers_reach_the_objective_of_one(self):
        # Shards of some 2,500 rows: with much smaller ones, averaging costs epochs.
        data = ["--generate", "--rows", 20000, "--features", 5000, "--nonzeros", 30, "--sync-every", 50, "--quiet",
                "--deferred-eval"]
        single = self.final([SVM, *data])["objective"]
        for graph in ("complete", "root-expander"):
            run = self.final([RUN, "-n", 8, SVM, *data, "--graph", graph, "--sync", "notify-ack"])
            self.assertLess(run["objective"], 1.01 * single, graph)
            degree = {"complete": "7", "root-expander": "2"}[graph]
            self.assertEqual(list(run["all"]["reduces_by_inputs"]), [degree])
            self.assertEqual(run["all"]["torn_reads"] + run["all"]["stale_reads"], 0)

    def test_notify_ack_gives_the_same_model_every_time_and_over_every_transport(self):
        # The data flow of NOTIFY-ACK doesn't depend on timing: the same floats, added in the same order.
        runs = [["--transport", "shm"], ["--transport", "shm", "--straggler", "1:3"], ["--transport", "ucx"]]
        objectives = set()
        for options in runs:
            if "ucx" in options and "not work" in Job([SVM, *DATA, "--epochs", 0.1, *options]).text():
                continue
            command = [RUN, "-n", 3, SVM, *DATA, "--epochs", 3, *options]
            objectives.add(self.final(command)["objective"])
        self.assertEqual(len(objectives), 1, objectives)

    def test_the_weaker_modes_train_too(self):
        for sync in ("bsp", "async"):
            run = self.final([RUN, "-n", 4, SVM, *DATA, "--epochs", 5, "--sync", sync])
            self.assertLess(run["objective"], 0.5)
            self.assertEqual(run["all"]["exchanges"], sum(run["all"]["reduces_by_inputs"].values()))

    def test_skewed_shards_make_a_sparse_graph_worse_than_a_complete_one(self):
        # In NOTIFY-ACK, the objectives do not depend on timing.
        objectives = {}
        for skew in ("none", "label", "feature:0.5"):
            for graph in ("complete", "ring"):
                run = self.final([RUN, "-n", 6, SVM, *DATA, "--epochs", 4, "--graph", graph, "--shard-skew", skew])
                self.assertEqual(events(self.path("run.jsonl"), "config")[0]["shard_skew"], skew)
                objectives[skew, graph] = run["objective"]
        self.assertEqual(len(set(objectives.values())), 6, objectives)
        self.assertGreater(objectives["label", "ring"], 1.1 * objectives["none", "ring"])
        self.assertGreater(objectives["label", "ring"], objectives["label", "complete"])

    def test_losses_and_stragglers(self):
        run = self.final([RUN, "-n", 2, SVM, *DATA, "--epochs", 2, "--loss", "log", "--straggler", "1:5"])
        self.assertLess(run["objective"], 0.7)
        self.assertGreater(run["own"]["wait_s"], 0)

    def test_a_target_stops_all_workers_after_the_same_exchange(self):
        for sync in ("notify-ack", "async"):
            command = [RUN, "-n", 4, SVM, *[o for o in DATA if o != "--deferred-eval"], "--sync", sync, "--graph", "ring",
                       "--eval-every", 5, "--epochs", 1000, "--target-objective", 0.4]
            run = self.final(command)
            self.assertLess(run["own"]["exchanges"], 1000)
            if sync == "notify-ack":
                self.assertEqual(run["all"]["exchanges"], 4 * run["own"]["exchanges"])
        missed = [SVM, *[o for o in DATA if o != "--deferred-eval"], "--epochs", 1, "--target-objective", 0.0001]
        self.final(missed, expect=3)

    def test_one_worker_resumes_bit_for_bit(self):
        base = self.path("ckpt")
        whole = [SVM, *DATA, "--epochs", 4, "--checkpoint", base, "--checkpoint-every", 60]
        self.final(whole)  # 240 exchanges; the last two checkpoints stay
        kept = sorted(name for name in os.listdir(self.folder.name) if name.startswith("ckpt"))
        self.assertEqual(kept, ["ckpt.0-of-1.180", "ckpt.0-of-1.240"])
        shutil.move(self.path("ckpt.0-of-1.240"), self.path("straight"))
        self.final([*whole, "--resume", base])
        self.assertTrue(filecmp.cmp(self.path("straight"), self.path("ckpt.0-of-1.240"), shallow=False))

    def test_averages_resume_bit_for_bit(self):
        base = self.path("ckpt")
        whole = [SVM, *DATA, "--average", "--epochs", 2, "--checkpoint", base, "--checkpoint-every", 60]
        straight = self.final(whole)
        os.remove(self.path("ckpt.0-of-1.120"))
        self.assertEqual(self.final([*whole, "--resume", base])["objective"], straight["objective"])
        other = Job([SVM, *DATA, "--epochs", 2, "--resume", base])
        self.assertEqual(other.wait(), 2)
        self.assertIn("averaging on, this run has off", other.text())

    def test_the_average_ends_below_the_last_model(self):
        data = ["--generate", "--rows", 4000, "--features", 200, "--nonzeros", 20, "--flipped", 0.1, "--quiet",
                "--deferred-eval"]
        for ranks, sync in ((1, "notify-ack"), (3, "notify-ack"), (3, "bsp")):
            run = [RUN, "-n", ranks, SVM, *data, "--sync", sync]
            last, average = (self.final([*run, *options])["objective"] for options in ([], ["--average"]))
            self.assertLess(average, last, (ranks, sync))
        self.assertLess(self.final([RUN, "-n", 3, SVM, *data, "--sync", "async", "--average"])["objective"], 0.5)

    def test_a_model_is_saved_and_predicts(self):
        train, labels = self.path("train"), self.path("labels")
        with open(train, "w", encoding="ascii") as file:
            for row in range(300):
                file.write(f"{1 + row % 2} 1:{row % 7 - 3 + 2 * (row % 2)} 2:{row % 5} {3 + row % 3}:1\n")
        for options in ([SVM], [RUN, "-n", 3, SVM]):
            model = self.path("model")
            final = self.final([*options, "--train", train, "--test", train, "--model", model, "--quiet", "--average"])
            predict = [SVM, "--predict", model, "--test", train, "--output", labels]
            done = subprocess.run([*predict, "--json"], text=True, capture_output=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(done.stdout)
            self.assertEqual((found["event"], found["rows"]), ("prediction", 300))
            # Weights of the file and of the training are the same floats.
            self.assertAlmostEqual(found["accuracy"], 1 - final["test_error"], 12)
            with open(labels, encoding="ascii") as file, open(train, encoding="ascii") as rows:
                right = sum(label.strip() == row.split()[0] for label, row in zip(file, rows, strict=True))
            self.assertEqual(right, found["right"])
            told = Job([*predict, "--json-out", self.path("predicted.jsonl")])
            self.assertEqual(told.wait(), 0)
            self.assertIn(f"accuracy {100 * found['accuracy']:.4f} % ({right}/300)", told.text())
            self.assertEqual(events(self.path("predicted.jsonl"), "prediction"), [found])

    def test_outputs_to_what_is_no_file_are_written_there(self):
        train = [SVM, *DATA, "--epochs", 0.1]
        device = self.copy_of_device("null", 3)
        for option in ("--model", "--json-out", "--checkpoint"):
            # The names of checkpoints have the rank and the iteration behind them.
            self.assertEqual(Job([*train, option, device]).wait(), 0)
            self.assertTrue(stat.S_ISCHR(os.stat(device).st_mode), option)
        self.assertEqual(Job(train, env={"DUNLIN_TRACE": device}).wait(), 0)
        self.assertTrue(stat.S_ISCHR(os.stat(device).st_mode))
        done = subprocess.run([str(word) for word in [*train, "--model", "/dev/stdout"]], text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("solver_type", done.stdout)

    def test_a_model_that_can_not_be_written_costs_no_training(self):
        job = Job([SVM, *DATA, "--epochs", 1e6, "--model", self.path("no folder/model")])
        self.assertEqual(job.wait(), 2)
        self.assertIn("no folder/model", job.text())

    def test_a_link_to_a_model_stays_and_its_target_is_replaced(self):
        model, target = self.path("model"), self.path("target")
        with open(target, "w", encoding="ascii") as file:
            file.write("former")
        os.chmod(target, 0o640)
        os.symlink("target", model)
        os.symlink("victim", model + ".partial")
        with open(self.path("victim"), "w", encoding="ascii") as file:
            file.write("precious")
        self.assertEqual(Job([SVM, *DATA, "--epochs", 0.1, "--model", model]).wait(), 0)
        self.assertTrue(os.path.islink(model))
        with open(target, encoding="ascii") as file:
            self.assertIn("solver_type", file.read())
        self.assertEqual(stat.S_IMODE(os.stat(target).st_mode), 0o640)
        with open(self.path("victim"), encoding="ascii") as file:
            self.assertEqual(file.read(), "precious")

    def test_standard_output_is_json_alone_where_it_is_asked_for(self):
        done = subprocess.run([SVM, *[str(o) for o in DATA if o != "--quiet"], "--epochs", "1", "--json"], text=True,
                              capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        kinds = {json.loads(line)["event"] for line in done.stdout.splitlines()}
        self.assertEqual(kinds, {"config", "progress", "final"})

    def test_the_run_that_began_last_is_resumed_though_an_older_one_got_further(self):
        base = self.path("ckpt")
        run = [RUN, "-n", 2, SVM, *DATA, "--checkpoint", base, "--checkpoint-every", 10, "--lambda"]
        self.final([*run, 0.01, "--epochs", 2])
        self.final([*run, 0.001, "--epochs", 1])
        self.final([*run, 0.001, "--epochs", 2, "--resume", base])

    def test_async_workers_resume_each_where_it_was(self):
        base = self.path("ckpt")
        run = [RUN, "-n", 2, SVM, *DATA, "--sync", "async", "--checkpoint", base, "--checkpoint-every", 10]
        self.final([*run, "--epochs", 1])
        for name in os.listdir(self.folder.name):  # as if rank 1 had been far behind
            if name.startswith("ckpt.0-") and name != "ckpt.0-of-2.30":
                os.remove(self.path(name))
            if name == "ckpt.1-of-2.30":
                os.remove(self.path(name))
        left = sorted(name for name in os.listdir(self.folder.name) if name.startswith("ckpt"))
        self.assertEqual(left, ["ckpt.0-of-2.30", "ckpt.1-of-2.20"])
        self.final([*run, "--epochs", 2, "--resume", base])

    def test_traces_of_several_ranks_need_several_files(self):
        run = [RUN, "-n", 2, SVM, *DATA, "--epochs", 0.2]
        one = Job(run, env={"DUNLIN_TRACE": self.path("trace")})
        self.assertEqual(one.wait(), 2, one.text())
        self.assertIn("%r", one.text())
        self.final(run, env={"DUNLIN_TRACE": self.path("trace-%r")})
        self.assertTrue(os.path.exists(self.path("trace-1")))
        full = self.copy_of_device("full", 7)
        unwritable = Job([SVM, *DATA, "--epochs", 0.2], env={"DUNLIN_TRACE": full})
        self.assertEqual(unwritable.wait(), 1, unwritable.text())
        self.assertIn(f"{full}: write: No space left on device", unwritable.text())

    def test_resuming_something_else_is_refused(self):
        base = self.path("ckpt")
        Job([SVM, *DATA, "--epochs", 1, "--checkpoint", base]).wait()
        other = Job([SVM, *DATA, "--epochs", 1, "--lambda", 0.01, "--resume", base])
        self.assertEqual(other.wait(), 2)
        self.assertIn("lambda", other.text())
        # Other data of the same shape.
        for name, period in (("one", 7), ("other", 5)):
            with open(self.path(name), "w", encoding="ascii") as file:
                file.writelines(f"{1 - row % 2 * 2} 1:{row % period + 1} 2:1\n" for row in range(40))
        base = self.path("one.ckpt")
        self.assertEqual(Job([SVM, "--train", self.path("one"), "--epochs", 1, "--checkpoint", base]).wait(), 0)
        other = Job([SVM, "--train", self.path("other"), "--epochs", 2, "--resume", base])
        self.assertEqual(other.wait(), 2, other.text())
        self.assertRegex(other.text(), "the checkpoint was made with data [0-9a-f]{16}, this run has [0-9a-f]{16}")
        # At the start, too.
        job = Job([RUN, "-n", 2, "sh", "-c", f"exec {SVM} --train {self.folder.name}/$(test $DUNLIN_RANK = 0 && "
                   "echo one || echo other)"])
        self.assertEqual(job.wait(), 2, job.text())
        self.assertRegex(job.text(), r"\[1\] .*options or data: training set .*: rank 0 has [0-9a-f]+, rank 1 has [0-9a-f]+")
        none = Job([SVM, *DATA, "--epochs", 1, "--resume", self.path("nothing")])
        self.assertEqual(none.wait(), 2)
        self.assertIn("no checkpoint", none.text())

    def test_ranks_with_other_options_are_told(self):
        for first, second, told in (
                (["--lambda", 1e-4], ["--lambda", 0.5], "--lambda: rank 0 has 0.0001, rank 1 has 0.5"),
                (["--eta0", 0.5], [], "--eta0: rank 0 has 0.5, rank 1 has none"),
                (["--epochs", 1], ["--epochs", 2], "--epochs: rank 0 has 1, rank 1 has 2"),
                (["--resume", self.path("nothing")], [], "--resume: rank 0 has given, rank 1 has not given"),
                ([], ["--target-objective", 0.5], "--target-objective: rank 0 has none, rank 1 has 0.5")):
            with self.subTest(told):
                self.check_difference([RUN, SVM], DATA[:-1], first, second, told)

    def test_bad_input_is_told_with_its_place(self):
        bad = self.path("bad.libsvm")
        with open(bad, "w", encoding="ascii") as file:
            file.write("+1 1:1\n-1 2:x\n")
        for command, code, text in (
                ([SVM, "--train", bad], 2, "bad.libsvm:2:"),
                ([SVM, "--train", self.path("absent")], 2, "absent"),
                ([SVM, "--train", self.fifo()], 2, "fifo: is not a regular file"),
                ([SVM, *DATA, "--graph", f"file:{self.fifo()}"], 2, "fifo: is not a regular file"),
                ([SVM, "--graph", "moebius", *DATA], 2, "moebius"),
                ([SVM, "--shard-skew", "color", *DATA], 2, "--shard-skew: 'color' is not none, label, feature"),
                ([SVM, "--shard-skew", "label:2", *DATA], 2, "degree from 0 to 1"),
                ([SVM, "--straggler", "x:2", *DATA], 2, "--straggler"),
                ([SVM, "--straggler", "3:2", *DATA], 2, "rank 3 in a job of 1"),
                ([SVM, "--epochs", "nan", *DATA], 2, "--epochs"),
                ([SVM, "--generate", "--rows", "-5"], 2, "--rows"),
                ([SVM, "--generate", "--features", "400000000"], 2, "--features"),
                ([SVM, "--seed", "-1", *DATA], 2, "'-1' is not a whole number"),
                ([SVM, "--seed", "99999999999999999999", *DATA], 2, "--seed"),
                ([SVM, "--seed", "nan", *DATA], 2, "--seed"),
                ([SVM, "--train", self.stray_index()], 2, "2000000000 features"),
                ([RUN, "-n", 4, SVM, *DATA, "--graph", f"file:{self.two_halves()}"], 2, "not strongly connected"),
                ([SVM, "--sync", "sometimes", *DATA], 2, "--sync"),
                ([SVM, "--predict", bad, "--test", bad], 2, "bad.libsvm:1: '+1' is no part of a model"),
                ([SVM, "--predict", self.path("absent"), "--test", bad], 2, "absent"),
                ([SVM, "--predict", bad], 2, "--test"),
                ([SVM, "--predict", bad, "--test", bad, "--train", bad], 2, "combined with training"),
                ([SVM, "--output", bad, *DATA], 2, "--predict"),
                ([SVM, "--test", bad], 2, "--train or --predict"),
                ([SVM, *DATA, "--epochs", 0.1, "--model", self.path("no/such/model")], 2, "no/such/model"),
                ([SVM, "--transport", "pigeon", *DATA], 2, "pigeon"),
                ([SVM, *DATA, "--json-out", self.path("no/such/folder")], 2, "no/such/folder"),
                ([RUN, "-n", 5, SVM, *DATA, "--graph", "hypercube"], 2, "hypercube")):
            with self.subTest(command[1:3]):
                job = Job(command)
                self.assertEqual(job.wait(60), code, job.text())
                self.assertIn(text, job.text())

    def copy_of_device(self, name, minor):
        """A device of the kernel's memory driver of its own: if a program replaces it, the host keeps its."""
        path = self.path(name)
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        except PermissionError:
            self.skipTest("this user may not make devices")
        return path

    def fifo(self):
        path = self.path("fifo")
        if not os.path.exists(path):
            os.mkfifo(path)
        return path

    def stray_index(self):
        with open(self.path("stray.libsvm"), "w", encoding="ascii") as file:
            file.write("+1 2000000000:1\n-1 1:1\n")
        return file.name

    def two_halves(self):
        with open(self.path("halves.edges"), "w", encoding="ascii") as file:
            file.write("nodes 4\n0 1\n1 0\n2 3\n3 2\n")
        return file.name

    def test_torchrun_variables_start_a_job(self):
        port = free_ports(2)  # rank 0 listens at the second one
        base = {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                "DUNLIN_JOB_SECRET": "a secret of this test"}
        jobs = [Job([SVM, *DATA, "--epochs", 2, "--json-out", self.path("torchrun.jsonl")],
                    env={**base, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(3)]
        for job in jobs:
            self.assertEqual(job.wait(), 0, job.text())
        self.assertEqual(events(self.path("torchrun.jsonl"), "config")[0]["workers"], 3)
        self.assertEqual(events(self.path("torchrun.jsonl"), "config")[0]["launcher"], "torchrun")

    def test_mpirun_starts_a_job(self):
        if not shutil.which("mpirun"):
            self.skipTest("mpirun is not installed")
        environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        run = self.final(["mpirun", "--oversubscribe", "-n", 4, SVM, *DATA, "--epochs", 3], env=environment)
        self.assertEqual(events(self.path("run.jsonl"), "config")[0]["launcher"], "pmix")
        same = self.final([RUN, "-n", 4, SVM, *DATA, "--epochs", 3])
        self.assertEqual(run["objective"], same["objective"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
