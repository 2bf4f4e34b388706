"""dunlin-logreg as whole jobs: the same minimum for any number of ranks; output; wrong requests; deaths."""

import json
import lzma
import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import Job, JobTest, await_progress, events, reports  # noqa: E402

RUN, LOGREG = map(os.path.abspath, sys.argv[1:3])
del sys.argv[1:3]

# Reaches the minimum in a second or less.
DATA = ["--generate", "--rows", 3000, "--features", 400, "--nonzeros", 15, "--flipped", 0.05, "--test-rows", 1000]
EXACT = ["--absolute-tolerance", 1e-7, "--relative-tolerance", 1e-7]


def line_of(label, values):
    return " ".join([label] + [f"{index}:{value}" for index, value in values]) + "\n"


class Jobs(JobTest):
    def write(self, name, text):
        with open(self.path(name), "w", encoding="ascii") as file:
            file.write(text)
        return self.path(name)

    def run_job(self, ranks, *options, **how):
        return self.final([RUN, "-n", ranks, LOGREG, *options], **how)

    def lines(self, kind):
        return events(self.path("run.jsonl"), kind)

    def test_four_ranks_find_the_minimum_of_one(self):
        one = self.run_job(1, *DATA, *EXACT, "--reference")
        self.assertLess(one["relative_error"], 1e-9)
        four = self.run_job(4, *DATA, *EXACT, "--reference", "--adaptive-rho")
        self.assertLess(four["relative_error"], 1e-9)
        self.assertAlmostEqual(four["objective"] / one["objective"], 1, delta=1e-6)
        self.assertEqual(one["test_rows"], 1000)
        self.assertEqual(four["test_accuracy"], one["test_accuracy"])
        self.assertGreater(four["test_accuracy"], 0.7)

    def test_ranks_with_other_options_are_told(self):
        for first, second, told in ((["--cost", 1], ["--cost", 10], "--cost: rank 0 has 1, rank 1 has 10"),
                                    (["--groups", 2], [], "--groups: rank 0 has 2, rank 1 has 0"),
                                    ([], ["--reference"], "--reference: rank 0 has false, rank 1 has true")):
            with self.subTest(told):
                self.check_difference([RUN, LOGREG], DATA, first, second, told)

    def test_the_algorithm_of_the_all_reduce_does_not_matter(self):
        objectives = {}
        for algorithm in ("auto", "ring", "hierarchical", "torus-2d", "2d-tga"):
            final = self.run_job(4, *DATA, "--algorithm", algorithm, "--groups", 2, "--reference")
            config, progress = self.lines("config")[0], self.lines("progress")
            if algorithm != "auto":
                self.assertEqual(config["algorithm"], algorithm)
            self.assertEqual(final["stopped_by"], "residuals")
            self.assertEqual(len(progress), final["iterations"])
            objectives[algorithm] = [moment["objective"] for moment in progress]
        for algorithm, course in objectives.items():
            self.assertEqual(len(course), len(objectives["ring"]), algorithm)
            for ours, ring in zip(course, objectives["ring"]):
                self.assertAlmostEqual(ours / ring, 1, delta=1e-9, msg=algorithm)

    def test_every_transport_gives_the_same_numbers(self):
        courses = []
        for transport in ("shm", "ucx"):
            options = [*DATA, "--algorithm", "ring", "--transport", transport]
            alone = Job([LOGREG, *options, "--iterations", 1])
            if alone.wait() != 0 and "not work" in alone.text():
                continue
            self.run_job(3, *options)
            courses.append([moment["objective"] for moment in self.lines("progress")])
        if len(courses) < 2:
            self.skipTest("a single transport works here")
        self.assertEqual(courses[0], courses[1])

    def test_the_history_adds_up(self):
        final = self.run_job(3, *DATA, "--reference")
        progress = self.lines("progress")
        self.assertEqual([moment["iteration"] for moment in progress], list(range(1, len(progress) + 1)))
        for moment in progress:
            self.assertGreater(moment["compute_s"], 0)
            self.assertLessEqual(moment["sync_least_s"], moment["sync_s"])
        for key in ("compute_s", "sync_s", "sync_least_s"):
            self.assertAlmostEqual(sum(moment[key] for moment in progress), final[key], 9)
        # The times of each rank are at most those of the slowest rank in each iteration.
        self.assertEqual([len(final["by_rank"][key]) for key in ("compute_s", "sync_s")], [3, 3])
        self.assertLessEqual(max(final["by_rank"]["compute_s"]), final["compute_s"] + 1e-9)
        self.assertLessEqual(max(final["by_rank"]["sync_s"]), final["sync_s"] + 1e-9)
        self.assertLessEqual(final["time_s"], final["compute_s"] + final["sync_s"] + 1e-9)
        reference = self.lines("reference")[0]
        self.assertLessEqual(reference["gradient_ratio"], 1e-10)
        last = progress[-1]
        self.assertEqual(last["objective"], final["objective"])
        self.assertAlmostEqual(last["relative_error"],
                               abs(last["objective"] - reference["objective"]) / reference["objective"], 15)
        self.assertLessEqual(last["primal_residual"], last["primal_bound"])
        self.assertLessEqual(last["dual_residual"], last["dual_bound"])

    def test_a_target_is_reached_or_missed(self):
        final = self.run_job(3, *DATA, "--target-error", 1e-4)
        self.assertEqual(final["stopped_by"], "target")
        errors = [moment["relative_error"] for moment in self.lines("progress")]
        self.assertLessEqual(errors[-1], 1e-4)
        self.assertGreater(min(errors[:-1]), 1e-4)
        final = self.run_job(2, *DATA, "--target-error", 1e-9, "--iterations", 2, expect=3)
        self.assertEqual(final["stopped_by"], "iterations")

    def test_files_of_all_label_sets_plain_and_packed_give_the_same_model(self):
        rows = [[(1, 1), (3, 0.5)], [(2, 1)], [(1, 0.5), (2, -1)], [], [(3, 2)], [(1, -1)]]
        signs = [1, 0, 1, 0, 0, 1]
        models, finals = [], []
        for labels in (("-1", "+1"), ("0", "1"), ("1", "2")):
            text = "".join(line_of(labels[sign], row) for sign, row in zip(signs, rows))
            plain = self.write("train", text)
            packed = self.path("train.xz")
            with lzma.open(packed, "wt", encoding="ascii") as file:
                file.write(text)
            for name in (plain, packed):
                model = self.path("model")
                job = Job([RUN, "-n", 2, LOGREG, "--train", name, "--test", name, "--bias", 1, *EXACT,
                           "--json-out", self.path("run.jsonl"), "--model", model])
                if job.wait() != 0 and name == packed and "liblzma" in job.text():
                    continue
                self.assertEqual(job.process.returncode, 0, job.text())
                finals.append(self.lines("final")[0])
                with open(model, encoding="ascii") as file:
                    head, weights = file.read().split("w\n")
                self.assertIn(f"label {int(labels[1])} {int(labels[0])}\nnr_feature 3\nbias 1\n", head)
                models.append(weights)
        self.assertEqual(len(set(models)), 1)
        self.assertEqual(len(models[0].split()), 4)
        self.assertEqual(len({final["test_accuracy"] for final in finals}), 1)

    def test_more_ranks_than_rows(self):
        train = self.write("train", "+1 1:1\n-1 2:1\n")
        final = self.run_job(4, "--train", train, *EXACT, "--reference")
        self.assertLess(final["relative_error"], 1e-9)

    def test_standard_output_is_json_alone_where_it_is_asked_for(self):
        done = subprocess.run([LOGREG, *map(str, DATA), "--iterations", "3", "--json"], text=True,
                              capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        kinds = [json.loads(line)["event"] for line in done.stdout.splitlines()]
        self.assertEqual(kinds, ["config"] + 3 * ["progress"] + ["final"])
        told = Job([LOGREG, *DATA, "--iterations", 25])
        self.assertEqual(told.wait(), 0, told.text())
        for part in ("objective", "accuracy", "stopped by"):
            self.assertIn(part, told.text())
        silent = Job([LOGREG, *DATA, "--iterations", 3, "--quiet"])
        self.assertEqual((silent.wait(), silent.text()), (0, ""))

    def test_a_killed_rank_is_named_by_all_others(self):
        for transport in ("shm", "ucx"):
            alone = Job([LOGREG, *DATA, "--iterations", 1, "--transport", transport])
            if alone.wait() != 0 and "not work" in alone.text():
                continue
            with self.subTest(transport):
                json = self.path(f"{transport}.jsonl")
                # A rho so large that it hardly moves, and no residual is small enough. Neither a heartbeat nor the
                # deadline tells of a death within the limit, which a loaded host doesn't reach.
                job = Job([RUN, "-n", 4, "--keep-going", LOGREG, *DATA, "--rho", 1e9, "--iterations", 10**9, "--quiet",
                           "--absolute-tolerance", 0, "--relative-tolerance", 0, "--transport", transport,
                           "--json-out", json], env={"DUNLIN_HEARTBEAT": "60s", "DUNLIN_DEADLINE": "120s"})
                self.addCleanup(job.kill)
                await_progress(job, json)
                os.kill(job.rank_pid(2), signal.SIGKILL)
                killed_at = time.monotonic()
                self.assertNotEqual(job.wait(60), 0)
                found = reports(job, "error: .*rank 2")
                self.assertEqual(sorted(found), [0, 1, 3], job.text())
                for moment, line in found.values():
                    self.assertLess(moment - killed_at, 60, line)
                for rank in (0, 1, 3):
                    self.assertRegex(job.text(), rf"rank {rank} \(process \d+\) exited with code 1")

    def test_a_death_while_rank_0_solves_the_reference_is_told_by_all_others(self):
        # Solving takes a second or more.
        data = ["--generate", "--rows", 6000, "--features", 3000, "--nonzeros", 40, "--flipped", 0.2, "--cost", 1e4]
        json = self.path("run.jsonl")
        job = Job([RUN, "-n", 3, "--keep-going", LOGREG, *data, "--reference", "--quiet", "--json-out", json])
        self.addCleanup(job.kill)
        while not events(json, "config"):
            self.assertIsNone(job.process.poll(), job.text())
            time.sleep(0.02)
        os.kill(job.rank_pid(1), signal.SIGKILL)
        self.assertEqual(events(json, "reference"), [])
        self.assertNotEqual(job.wait(120), 0)
        found = reports(job, "error: .*rank 1")
        self.assertEqual(sorted(found), [0, 2], job.text())
        for rank in (0, 2):
            self.assertRegex(job.text(), rf"rank {rank} \(process \d+\) exited with code 1")

    def test_wrong_requests_are_told(self):
        bad = self.write("bad.libsvm", "+1 1:1\n-1 2:x\n")
        classes = self.write("classes.libsvm", "1 1:1\n2 1:1\n3 1:1\n")
        good = self.write("good.libsvm", "+1 1:1\n-1 2:1\n")
        stray = self.write("stray.libsvm", "+1 2000000000:1\n-1 1:1\n")
        bare = self.write("bare.libsvm", "+1\n-1\n")
        for command, code, text in (
                ([LOGREG, "--train", bad], 2, "bad.libsvm:2:"),
                ([RUN, "-n", 2, LOGREG, "--train", bad], 2, "bad.libsvm:2:"),
                ([LOGREG, "--train", classes], 2, "classes.libsvm:3:"),
                ([LOGREG, "--train", good, "--test", bad], 2, "bad.libsvm:2:"),
                ([LOGREG, "--train", self.path("absent")], 2, "absent"),
                ([LOGREG, "--train", stray], 2, "2000000000 features"),
                ([LOGREG, "--train", bare, "--test", good], 2, "bare.libsvm: no features"),
                ([LOGREG, "--generate", "--features", 4000000000], 2, "4000000000 features"),
                ([LOGREG, "--generate", "--train", good], 2, "--train"),
                ([LOGREG, "--generate", "--rows", -5], 2, "--rows"),
                ([LOGREG, "--generate", "--features", 3, "--nonzeros", 5], 2, "5 non-zeros in a row of 3"),
                ([LOGREG, *DATA, "--cost", 0], 2, "--cost"),
                ([LOGREG, *DATA, "--cost", "nan"], 2, "--cost"),
                ([LOGREG, *DATA, "--rho", -1], 2, "--rho"),
                ([LOGREG, *DATA, "--iterations", 0], 2, "--iterations"),
                ([LOGREG, *DATA, "--algorithm", "carrier-pigeon"], 2, "2d-tga"),
                ([RUN, "-n", 3, LOGREG, *DATA, "--groups", 4], 2, "groups"),
                ([LOGREG, *DATA, "--transport", "pigeon"], 2, "pigeon"),
                ([LOGREG, *DATA, "--json-out", self.path("no/such/folder")], 2, "no/such/folder"),
                ([LOGREG, *DATA, "--json-out", "/dev/full"], 1, "/dev/full"),
                ([LOGREG, *DATA, "--model", self.path("no/such/folder")], 2, "no/such/folder"),
                ([RUN, "-n", 2, LOGREG, *DATA], 2, "%r")):
            with self.subTest(command[1:]):
                env = {"DUNLIN_TRACE": self.path("trace")} if text == "%r" else None
                job = Job(command, env=env)
                self.assertEqual(job.wait(60), code, job.text())
                self.assertIn(text, job.text())

    def test_a_trace_tells_what_every_rank_spent_in_collectives(self):
        final = self.run_job(2, *DATA, "--iterations", 3, env={"DUNLIN_TRACE": self.path("trace-%r")})
        self.assertEqual(final["iterations"], 3)
        for rank in "01":
            with open(self.path("trace-" + rank), encoding="utf-8") as file:
                spans = [event for event in json.load(file)["traceEvents"] if event.get("name") == "all-reduce"]
            messages = [span for span in spans if span["args"]["value"] == 8 * 400]  # 400 features in float64
            self.assertGreaterEqual(len(messages), 3)
            self.assertTrue(all(span["dur"] > 0 for span in spans))

    def test_ranks_that_read_different_sets_find_out(self):
        # A shell in front of rank 1 gives it another file of the same name.
        for other in ("+1 1:1\n-1 3:1\n", "+1 1:1\n-1 2:2\n"):  # of another shape, and of the same
            for folder, text in (("0", "+1 1:1\n-1 2:1\n"), ("1", other)):
                os.makedirs(self.path(folder), exist_ok=True)
                self.write(folder + "/train", text)
            job = Job([RUN, "-n", 2, "sh", "-c", f'cd {self.folder.name}/$DUNLIN_RANK && exec {LOGREG} --train train'])
            self.assertEqual(job.wait(60), 2, job.text())
            self.assertIn("training sets differ", job.text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
