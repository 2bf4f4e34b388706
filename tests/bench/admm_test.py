"""bench/peers/admm: the ADMM over MPI computes what dunlin-logreg does, and the script finds a program that does not.

    admm_test.py BUILD_DIR SCRIPT

Skipped (exit code 77) where there is no MPI with a compiler for C++.
"""

import importlib.util
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader

BUILD, SCRIPT = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
del sys.argv[1:3]
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPT.parent))
LOADER = SourceFileLoader("admm", str(SCRIPT))
admm = importlib.util.module_from_spec(importlib.util.spec_from_loader("admm", LOADER))
LOADER.exec_module(admm)

DATA = ["--generate", "--rows", "600", "--features", "50", "--nonzeros", "8"]


def write_run(path, objectives, has_end=True):
    lines = [{"event": "progress", "objective": objective} for objective in objectives]
    lines += [{"event": "final", "iterations": len(objectives)}] * has_end
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Agreement(Folder):
    def add(self, *runs):
        results = admm.Results("data", admm.TOLERANCE)
        for index, run in enumerate(runs):
            results.add(f"program {index}", write_run(self.folder / "run.jsonl", run))
        return results

    def test_rounding_is_no_difference(self):
        self.assertEqual(len(self.add([3.0, 2.0], [3.0, 2.0 * (1 + 5e-10)]).finals), 2)

    def test_another_objective_is_named_with_its_iteration(self):
        for other in (2.0 * (1 + 2e-9), 2.0 * (1 - 2e-9), math.nan):
            with self.subTest(other), self.assertRaisesRegex(admm.Failed, "after iteration 2 differ: .* of program 1, 2.0"):
                self.add([3.0, 2.0], [3.0, other])

    def test_another_number_of_iterations_is_told(self):
        with self.assertRaisesRegex(admm.Failed, "program 1 ran 1 iterations, program 0 2"):
            self.add([3.0, 2.0], [3.0])

    def test_a_run_without_an_end_is_told(self):
        with self.assertRaisesRegex(admm.Failed, "run.jsonl: the run has no final line"):
            admm.Results("data", admm.TOLERANCE).add("a", write_run(self.folder / "run.jsonl", [3.0], has_end=False))


class Jobs(Folder):
    peers, missing = [], []

    def test_the_whole_comparison(self):
        figures, runs = self.folder / "figures.jsonl", self.folder / "runs"
        done = subprocess.run([sys.executable, SCRIPT, "--build", BUILD, "--data", "generated", "--quick", "--ranks", "3",
                               "--groups", "3", "--iterations", "4", "--repetitions", "2", "--json-out", figures, "--keep", runs],
                              text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        names = [*admm.ALGORITHMS, *(peer.name for peer in self.peers)]
        rows = [line.split(" | ")[0][2:] for line in done.stdout.splitlines() if line.startswith("| ")]
        self.assertEqual(sorted(rows), sorted(["all-reduce", *names]))
        for absent in self.missing:
            self.assertIn(f"Missing here: {absent.split(':')[0]}", done.stdout)
        lines = [json.loads(line) for line in figures.read_text().splitlines()]
        self.assertEqual(sorted(line["program"] for line in lines), sorted(names))
        for line in lines:
            self.assertEqual((line["ranks"], line["iterations"]), (3, 4))
            self.assertTrue(all(len(line[field]) == 2 and min(line[field]) > 0 for field in admm.FIELDS), line)
            self.assertLess(abs(line["objective"] / lines[0]["objective"] - 1), admm.TIMED_TOLERANCE)
        self.assertEqual(len(list(runs.iterdir())), 3 * len(names))
        courses = [admm.read_run(path)[1] for path in runs.glob("*-check.jsonl")]
        self.assertEqual(len(courses), len(names))
        for course in courses:
            self.assertEqual(len(course), 10)
            self.assertLess(max(abs(ours / theirs - 1) for ours, theirs in zip(course, courses[0])), 1e-9)

    def test_the_reference_is_the_minimum(self):
        for peer in self.peers:
            path = self.folder / "run.jsonl"
            peer.run(2, [*DATA, "--target-error", "1e-6", "--json-out", str(path)])
            reference = next(line for line in map(json.loads, path.read_text().splitlines())
                             if line["event"] == "reference")
            final, objectives = admm.read_run(path)
            self.assertLessEqual(final["relative_error"], 1e-6)
            self.assertAlmostEqual(final["relative_error"], objectives[-1] / reference["objective"] - 1, 12)
            with self.assertRaisesRegex(admm.Failed, "."):  # exit code 3
                peer.run(2, [*DATA, "--target-error", "1e-12", "--iterations", "2"])

    def test_wrong_requests_end_the_job(self):
        for peer in self.peers:
            for options, text in (([*DATA, "--algorithm", "ring"], "--algorithm is not for"),
                                  ([*DATA, "--groups", "2"], "--groups is not for"),
                                  ([*DATA, "--model", "x"], "--model is not for"),
                                  (["--train", str(self.folder / "absent")], "absent")):
                with self.subTest(options):
                    # What the launcher says of the abort may come last, so that only its own output has the reason.
                    done = subprocess.run([peer.program, *options], text=True, capture_output=True, timeout=120)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn(text, done.stdout + done.stderr)
                    with self.assertRaises(admm.Failed):
                        peer.run(2, options)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as FOLDER:
        Jobs.peers, Jobs.missing = admm.make_peers(admm.candidates(BUILD, pathlib.Path(FOLDER)))
        if not Jobs.peers:
            print(f"skipped: no MPI to compare with: {'; '.join(Jobs.missing)}")
            sys.exit(77)
        unittest.main(verbosity=2)
