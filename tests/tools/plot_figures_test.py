#!/usr/bin/env python3
"""The figures of dunlin-plot, of what the programs really write: each is run here, with little to do.

    plot_figures_test.py NAME=PROGRAM...

Skipped (exit code 77) where there is no matplotlib. Without dunlin-cnn, its figures are not tested.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # of the modules of dunlin-plot, in the source tree
from plot_test import groups_run  # noqa: E402
PROGRAMS = {}
SVM = ["--generate", "--rows", 600, "--features", 300, "--nonzeros", 10, "--epochs", 4, "--sync-every", 20, "--quiet"]
LOGREG = ["--generate", "--rows", 400, "--features", 100, "--nonzeros", 8, "--iterations", 6, "--quiet"]
CNN = ["--generate", "--images", 128, "--test-images", 32, "--epochs", 1, "--batch-size", 16, "--threads", 1, "--quiet"]


def run(command, expect=0):
    done = subprocess.run(list(map(str, command)), text=True, capture_output=True)
    if done.returncode != expect:
        raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


class FigureTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def file_of(self, name, ranks, program, *options, expect=0):
        """What a job of a program wrote. Jobs of the same name are run once."""
        path = self.folder / f"{name}.jsonl"
        if not path.exists():
            run([PROGRAMS["dunlin-run"], "-n", ranks, PROGRAMS[program], *options, "--json-out", path], expect)
        return str(path)

    def changed(self, path, change, keep=lambda line: True):
        """The file with its kept lines changed."""
        lines = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
        lines = [line for line in lines if keep(line)]
        change(lines)
        new = self.folder / f"changed-{os.path.basename(path)}"
        new.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(new)

    def plot(self, *arguments, expect=0):
        return run([PROGRAMS["dunlin-plot"], *arguments], expect)

    def drawn(self, *arguments):
        """The texts of the figure as SVG, which has text as paths and the text itself in a comment."""
        path = self.folder / "figure.svg"
        self.plot(*arguments, "--out", path)
        picture = path.read_text()
        self.assertTrue(picture.startswith("<?xml"), picture[:40])
        return re.findall("<!-- (.*?) -->", picture)

    def svm_runs(self):
        return {"single process": self.file_of("svm-1", 1, "dunlin-svm", *SVM),
                "BSP": self.file_of("svm-bsp", 3, "dunlin-svm", *SVM, "--sync", "bsp"),
                "NOTIFY-ACK": self.file_of("svm-ack", 3, "dunlin-svm", *SVM, "--average")}

    def test_svm_over_time_and_bytes(self):
        runs = [f"{label}={path}" for label, path in self.svm_runs().items()]
        texts = self.drawn("svm", *runs, "--baseline", "single process")
        for text in ("Objective over time", "Objective over bytes", "single process, at its end",
                     "dunlin-svm: generated, 600 rows, hinge loss, lambda 0.0001"):
            self.assertIn(text, texts)
        self.assertEqual((texts.count("BSP"), texts.count("NOTIFY-ACK")), (2, 2))
        self.assertEqual(texts.count("single process"), 1)  # it sends nothing
        self.assertIn("share of wrong test rows", self.drawn("svm", *runs, "--x", "examples", "--y", "test_error"))
        lines = self.plot("svm", "--table", "--target", 10, *runs).splitlines()
        self.assertEqual(len(lines), 4)
        self.assertNotIn(" - ", lines[2])

    def test_every_format(self):
        single = self.svm_runs()["single process"]
        for name, magic in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.html", b"<!doctype html>")):
            path = self.folder / name
            self.plot("svm", single, "--x", "time", "--out", path)
            self.assertTrue(path.read_bytes().startswith(magic), path.read_bytes()[:40])
            self.assertGreater(path.stat().st_size, 5000)
        self.assertIn("<svg", (self.folder / "a.html").read_text())
        self.assertIn("ends in .png", self.plot("svm", "--out", "a.gif", single, expect=1))

    def test_missing_fields_and_wrong_names_are_named(self):
        path = self.svm_runs()["BSP"]
        bad = self.changed(path, lambda lines: lines[2].pop("bytes_sent"))
        out = self.folder / "x.png"
        self.assertIn(f"{bad}:3: 'bytes_sent' is missing", self.plot("svm", "--out", out, bad, expect=1))
        self.assertIn("no file has this label", self.plot("svm", "--out", out, "--baseline", "b", f"a={path}", expect=1))

    def test_consensus(self):
        runs = [f"{name}=" + self.file_of(name, 2, "dunlin-consensus", name, "--iterations", 60, "--quiet")
                for name in ("dgd", "exact-diffusion")]
        diverged = self.file_of("diverged", 2, "dunlin-consensus", "dgd", "--step", 5, "--iterations", 5000, "--quiet",
                                expect=3)
        texts = self.drawn("consensus", *runs, f"diverged={diverged}", "--y", "error_max,consensus_error")
        for text in ("Error of the worst rank", "Disagreement of the ranks", "iteration of each rank"):
            self.assertIn(text, texts)
        self.assertEqual(texts.count("diverged"), 2)
        self.assertIn("Rms error over the ranks", self.drawn("consensus", *runs, "--y", "error_rms"))
        pushed = self.file_of("push-sum", 2, "dunlin-consensus", "push-sum", "--quiet")
        self.assertIn("round of each rank", self.drawn("consensus", f"push-sum={pushed}"))
        self.assertEqual(len(self.plot("consensus", "--table", *runs, f"push-sum={pushed}").splitlines()), 4)

    def test_fish(self):
        path = self.file_of("fish", 2, "dunlin-consensus", "fish-school", "--steps", 40, "--quiet")
        texts = self.drawn("fish", path)
        for text in ("predator", "where they think the predator is", "after 0.0 s", "after 2.0 s"):
            self.assertIn(text, texts)
        self.drawn("fish", path, "--panels", 1)
        texts = self.drawn("fish", self.file_of("fish-1", 2, "dunlin-consensus", "fish-school", "--steps", 1, "--quiet"))
        self.assertIn("after 0.0 s", texts)

    def logreg_runs(self):
        return {name: self.file_of(f"logreg-{name}", 2, "dunlin-logreg", *LOGREG, "--reference", "--algorithm", name)
                for name in ("ring", "2d-tga")}

    def test_logreg(self):
        runs = [f"{label}={path}" for label, path in self.logreg_runs().items()]
        texts = self.drawn("logreg", *runs)
        for text in ("relative error of the objective", "Where the time goes (mean over the ranks)", "computing"):
            self.assertIn(text, texts)
        self.assertEqual(texts.count("ring"), 3)
        bare = self.file_of("logreg-bare", 2, "dunlin-logreg", *LOGREG)
        self.assertNotIn("relative error of the objective", self.drawn("logreg", *runs, f"bare={bare}"))
        self.assertEqual(len(self.plot("logreg", "--table", *runs, bare).splitlines()), 4)

    def test_logreg_times_add_up_to_the_elapsed_time(self):
        sys.path.insert(0, os.path.dirname(PROGRAMS["dunlin-plot"]))
        import plot_logreg
        for path in self.logreg_runs().values():
            _, about = plot_logreg.read_run(path)
            shares = plot_logreg.shares_of_time(about)
            self.assertGreaterEqual(min(shares), 0, about)
            self.assertAlmostEqual(sum(shares), about["time_s"], 12)

    def test_logreg_without_an_error_or_a_time(self):
        path = self.logreg_runs()["ring"]
        self.drawn("logreg", self.changed(path, lambda lines: lines[-2].update(relative_error=0)))
        bad = self.changed(path, lambda lines: lines[3].update(time_s=None))
        self.assertIn(f"{bad}:4: 'time_s' is missing", self.plot("logreg", "--out", "x.png", bad, expect=1))

    def test_cnn(self):
        if "dunlin-cnn" not in PROGRAMS:
            self.skipTest("this build has no dunlin-cnn")
        runs = ["one worker=" + self.file_of("cnn-1", 1, "dunlin-cnn", *CNN),
                "all-reduce=" + self.file_of("cnn-2", 2, "dunlin-cnn", *CNN, "--method", "all-reduce")]
        texts = self.drawn("cnn", *runs, "--target", 1.5)
        for text in ("Training loss over time", "Training loss over bytes", "target, 1.5", "dunlin-cnn: small"):
            self.assertIn(text, texts)
        self.assertEqual((texts.count("one worker"), texts.count("all-reduce")), (2, 3))
        self.assertIn("Training accuracy over epochs", self.drawn("cnn", *runs, "--y", "accuracy", "--x", "epochs"))
        table = self.plot("cnn", "--table", "--target", 100, "--baseline", "one worker", *runs)
        self.assertEqual(len(table.splitlines()), 3)

    def perf(self, name, *options):
        return self.file_of(f"perf-{name}", 2, "dunlin-perf", name, *options, "--transport", "shm")

    def test_perf_has_latency_and_bandwidth(self):
        sweep = ("--size", "8,512,4K,64K", "--iterations", 40, "--warmup", 4)
        puts = self.perf("put", *sweep)
        texts = self.drawn("perf", puts)
        self.assertEqual(texts.count("put, shm"), 2, "a curve of the latency and one of the bandwidth")
        for text in ("bandwidth / (GB/s)", "latency / us", "64K"):
            self.assertIn(text, texts)
        # A figure of several files names them.
        self.assertEqual(self.drawn("perf", f"one={puts}", f"two={puts}").count("put, shm, two"), 2)
        several = pathlib.Path(self.folder / "several.jsonl")
        several.write_text("".join(pathlib.Path(path).read_text() for path in (
            puts, self.perf("all-reduce", *sweep), self.perf("notify", "--iterations", 40),
            self.perf("barrier", "--iterations", 40), self.perf("consistency", "--reduces", 4, "--count", 100))))
        texts = self.drawn("perf", several)
        for text, count in (("put, shm", 2), ("all-reduce, shm", 2), ("notify, shm (no payload)", 1),
                            ("barrier, shm (no payload)", 1)):
            self.assertEqual(texts.count(text), count, text)
        self.assertIn("no line with", self.plot("perf", "--out", "x.png", self.perf("consistency"), expect=1))
        bad = self.changed(puts, lambda lines: lines[0].update(size="many"))
        self.assertIn(f"{bad}: not as Dunlin's programs write it: ", self.plot("perf", "--out", "x.png", bad, expect=1))

    def test_schedule(self):
        path = self.folder / "schedule.jsonl"
        path.write_text(run([PROGRAMS["dunlin-schedule"], "figures", "--json"]))
        texts = self.drawn("schedule", path)
        self.assertIn("Fig. 3a, 16 groups", texts)
        self.assertIn("communication time / ms", texts)
        bad = self.changed(path, lambda lines: lines[0].pop("seconds"), keep=lambda line: line.get("figure") == "3a")
        self.assertIn(f"{bad}:1: 'seconds' is missing", self.plot("schedule", "--out", "x.png", bad, expect=1))
        none = self.changed(path, lambda lines: None, keep=lambda line: "figure" not in line)
        self.assertIn("no line with", self.plot("schedule", "--out", "x.png", none, expect=1))

    def sim(self, name, *options):
        path = self.folder / f"{name}.jsonl"
        if not path.exists():
            run([PROGRAMS["dunlin-sim"], *options, "--json-out", path])
        return str(path)

    def test_straggler(self):
        path = self.sim("straggler", "straggler-ring", "--figures")
        texts = self.drawn("straggler", path)
        for text in ("straggler-aware, alpha 1.5", "delay of 6 us", "the paper's best, 25.3 %"):
            self.assertIn(text, texts)
        self.assertEqual(texts.count("circles: the paper's equations"), 3)
        bad = self.changed(path, lambda lines: lines[1].pop("gain_percent"), keep=lambda line: "figure" in line)
        self.assertIn(f"{bad}:2: 'gain_percent' is missing", self.plot("straggler", "--out", "x.png", bad, expect=1))
        half = self.changed(path, lambda lines: None, keep=lambda line: line.get("figure") == "by_delta_t")
        self.assertIn('"figure":"by_alpha"', self.plot("straggler", "--out", "x.png", half, expect=1))

    def test_groups_of_several_computations_times(self):
        path = self.folder / "times.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in groups_run(3300) + groups_run(6100, is_calibrated=True)))
        title = "Fig. 17, all workers alike, computation {} us"
        self.assertIn(title.format(6100), self.drawn("groups", path))
        texts = self.drawn("groups", path, "--compute-us", 3300)
        self.assertIn(title.format(3300), texts)
        self.assertIn("Fig. 18, all workers alike", texts)

    def test_groups(self):
        timed = self.sim("groups", "groups", "-n", 8, "--steps", 20)
        texts = self.drawn("groups", timed)
        self.assertIn("Fig. 19, one slow worker, per iteration", texts)
        self.assertNotIn("Fig. 18, all workers alike", texts)
        learnt = self.sim("groups-learn", "groups", "-n", 8, "--steps", 20, "--learn")
        texts = self.drawn("groups", learnt)
        self.assertIn("Fig. 18, all workers alike", texts)
        self.assertIn("parameter-server", texts)
        first = json.loads(pathlib.Path(learnt).read_text().splitlines()[0])
        self.drawn("groups", learnt, "--compute-us", first["compute_us"])
        bad = self.changed(learnt, lambda lines: lines[0].update(curve=1))
        self.assertIn(f"{bad}:1: 'curve' is no list", self.plot("groups", "--out", "x.png", bad, expect=1))


if __name__ == "__main__":
    while len(sys.argv) > 1 and "=" in sys.argv[1]:
        program, _, place = sys.argv.pop(1).partition("=")
        PROGRAMS[program] = place
    if subprocess.run(["/usr/bin/python3", "-c", "import matplotlib"], capture_output=True).returncode != 0:
        print("skipped: no matplotlib for /usr/bin/python3 (package python3-matplotlib)")
        sys.exit(77)
    unittest.main(verbosity=2)
