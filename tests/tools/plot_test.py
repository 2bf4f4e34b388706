#!/usr/bin/env python3
"""The tables and traces of dunlin-plot, and what it says to files that it cannot use.

    plot_test.py PROGRAM

plot_figures_test.py draws figures of what the programs write.
"""

import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""


def svm_run(rate, bytes_per_second):
    lines = [{"event": "config", "ranks": 8}]
    for step in range(1, 30):
        time_s = step * 0.25
        lines.append({"event": "progress", "time_s": time_s, "examples": step * 1000,
                      "objective": 0.07 + math.exp(-rate * time_s), "test_error": 0.05 + 0.4 / step,
                      "bytes_sent": bytes_per_second * time_s, "wait_s": 0.1, "inputs_per_reduce": 7.0,
                      "torn_reads": 0})
    everyone = {"bytes_sent": 8 * bytes_per_second * time_s, "inputs_per_reduce": 6.5, "torn_reads": 3, "wait_s": 1}
    return lines + [{"event": "final", "time_s": time_s, "objective": 0.0701, "own": {}, "all": everyone}]


def trace_of(rank, start_us):
    return {"otherData": {"dropped": rank, "start_us": start_us},
            "traceEvents": [{"name": "reduce", "ph": "X", "pid": rank, "tid": 0, "ts": 1.5, "dur": 2.0}]}


def timeline_of(steps):
    """The lines of a timeline whose steps have passes of 10, 20 and 5 ms, and in the backward pass another activity."""
    lines = ["["]
    for step in range(steps):
        for name, begin, end in (("FORWARD", 0, 10_000), ("BACKWARD", 10_000, 30_000), ("STEP", 30_000, 35_000)):
            lines.append({"ph": "B", "name": name, "tid": 0, "ts": 100_000 * (step + 1) + begin})
            if name == "BACKWARD":
                lines += [{"ph": "B", "name": "ENQUEUE_ALLREDUCE", "tid": 0, "ts": 100_000 * (step + 1) + begin + 1},
                          {"ph": "E", "tid": 0, "ts": 100_000 * (step + 1) + begin + 2}]
            lines.append({"ph": "E", "tid": 0, "ts": 100_000 * (step + 1) + end})
    return [line if line == "[" else json.dumps(line) + "," for line in lines]


def operations_of(steps, spans, **other):
    """A trace that begins 40 ms after the clock, with the same spans (name, begin, end in ms) in each step."""
    events = [{"name": name, "ph": "X", "ts": 100_000 * (step + 1) + 1e3 * begin - 40_000, "dur": 1e3 * (end - begin)}
              for step in range(steps) for name, begin, end in spans]
    return [{"otherData": {"dropped": 0, "start_us": 40_000.0} | other, "traceEvents": events}]


def consensus_run(rate, algorithm="dgd"):
    lines = [{"event": "config", "algorithm": algorithm, "graph": "star", "ranks": 4}]
    for iteration in range(50):
        error = rate ** iteration
        lines.append({"event": "progress", "iteration": iteration, "error_max": error, "error_rms": error / 2,
                      "consensus_error": 0 if iteration == 0 else error / 3})
    return lines + [{"event": "final", "error_max": error, "consensus_error": error / 3, "rate": rate}]


def school_run(steps):
    return [{"event": "config"}] + [
        {"event": "fish", "time_s": step / 4, "predator": [1.5, 0], "positions": [[step * 0.1, fish] for fish in range(5)],
         "velocities": [[0.1, 0]] * 5, "estimates": [[1.5, 0.1]] * 5} for step in range(steps)]


def logreg_run(algorithm, sync_s, has_reference=True):
    """Three iterations."""
    lines = [{"event": "config", "ranks": 4, "rows": 3000, "features": 400, "algorithm": algorithm}]
    if has_reference:
        lines.append({"event": "reference", "objective": 1000.5, "gradient_ratio": 1e-11, "time_s": 99})
    for iteration in (1, 2, 3):
        error = 0.1 ** iteration
        lines.append({"event": "progress", "iteration": iteration, "time_s": iteration * (0.1 + sync_s),
                      "objective": 1000.5 * (1 + error), "relative_error": error if has_reference else None})
    final = {"event": "final", "iterations": 3, "objective": 1001.5005, "relative_error": lines[-1]["relative_error"],
             "time_s": 3 * (0.1 + sync_s), "compute_s": 0.3, "sync_s": 3 * sync_s, "sync_least_s": sync_s}
    return lines + [final | ({"test_accuracy": 0.8475} if has_reference else {})]


def groups_run(compute_us, learns=True, is_calibrated=False):
    lines = []
    for slowed, factor in (("none", 0), ("one", 2), ("one", 5), ("random", 2)):
        for method, speed in (("parameter-server", 1), ("ad-psgd", 2), ("smart", 5)):
            line = {"what": "groups", "target_loss": 0.3, "slowdown": factor, "slowed": slowed, "method": method,
                    "over_parameter_server": speed, "paper_per_iteration": 5.1, "paper_overall": 5.2, "table": "figures",
                    "seed": 1, "compute_us": compute_us, "is_calibrated": is_calibrated}
            if learns:
                line.update({"overall_speedup": 1.1 * speed,
                             "curve": [[step, step / speed, 2 / (step + 1)] for step in range(8)] + [[8, 9, None]]})
            lines.append(line)
    return lines + [{"what": "groups", "table": "scale", "method": "smart"}]


def straggler_run():
    return [{"what": "straggler-ring", "figure": name, "alpha": alpha, "delta_t_us": late, "ring_us": 26 + late,
             "strategy_us": 26 + late / alpha, "gain_percent": late, "ring_predicted_us": 26 + late,
             "strategy_predicted_us": 26 + late / 2, "gain_predicted_percent": late + 1}
            for name in ("by_delta_t", "by_alpha") for alpha in (1.5, 2) for late in range(5)]


class PlotTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, name, lines):
        """A file of JSON lines; strings stand for themselves."""
        path = self.folder / name
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        return str(path)

    def plot(self, *arguments, expect=0):
        done = subprocess.run([PROGRAM, *arguments], text=True, capture_output=True)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr


class TextTest(PlotTest):
    def test_table_shows_the_end_of_each_run(self):
        path = self.file("a.json", svm_run(1, 1e6))
        lines = self.plot("svm", "--table", f"root expander={path}").splitlines()
        self.assertEqual(len(lines), 2)
        self.assertIn("objective", lines[0])
        self.assertRegex(lines[1], r"^root expander +7\.25 +29000 +0\.07010 +0\.0638 +58\.0 +0\.10 +6\.50 +3$")

    def test_svm_table_shows_when_a_target_was_reached(self):
        path = self.file("a.json", svm_run(1, 1e6))
        lines = self.plot("svm", "--table", "--target", "0.1", f"a={path}").splitlines()
        self.assertIn("s to target", lines[0])
        # exp(-t) falls below 0.03 between 3.5 and 3.75 s: the 15th line.
        self.assertRegex(lines[1], r"^a .* 3 +3\.75 +15000 +3\.8$")
        lines = self.plot("svm", "--table", "--target", "0.01", f"a={path}").splitlines()
        self.assertRegex(lines[1], r"^a .* 3 +- +- +-$")

    def test_consensus_table_shows_errors_and_rates(self):
        path = self.file("a.json", consensus_run(0.5))
        lines = self.plot("consensus", "--table", f"with dgd={path}").splitlines()
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[1], r"^with dgd +dgd +star +4 +1\.8e-15 +5\.9e-16 +0\.5000 +- +- +-$")

    def test_logreg_table_shows_times_beside_the_minimum(self):
        paths = [self.file("a.json", logreg_run("2d-tga", 0.02)), self.file("b.json", logreg_run("ring", 0.05, False))]
        lines = self.plot("logreg", "--table", f"ours={paths[0]}", f"b={paths[1]}").splitlines()
        self.assertEqual(len(lines), 3)
        self.assertRegex(lines[1], r"^ours +2d-tga +4 +3000 +400 +1000\.5 +1001\.5005 +1\.0e-03 +3 +0\.3000 +0\.0600 "
                                   r"+0\.0200 +84\.75$")
        self.assertRegex(lines[2], r"^b +ring +4 +3000 +400 +- +1001\.5005 +- +3 +0\.3000 +0\.1500 +0\.0500 +-$")

    def test_it_finds_its_modules_where_it_is_installed(self):
        source = pathlib.Path(PROGRAM).parent
        for folder, names in (("bin", ["dunlin-plot"]), ("share/dunlin/plot", [one.name for one in source.glob("*.py")])):
            (self.folder / folder).mkdir(parents=True)
            for name in names:
                shutil.copy(source / name, self.folder / folder / name)
        (self.folder / "link").symlink_to(self.folder / "bin/dunlin-plot")
        for program in ("bin/dunlin-plot", "link"):
            done = subprocess.run([self.folder / program, "--help"], text=True, capture_output=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([path.name for path in self.folder.rglob("__pycache__")], [])

    def test_malformed_lines_are_named(self):
        bad = self.file("bad.json", ['{"event":"config"}', '{"event":'])
        self.assertIn(f"{bad}:2: malformed JSON", self.plot("svm", "--table", bad, expect=1))
        self.assertIn("expected a JSON object", self.plot("svm", "--table", self.file("list.json", ["[1]"]), expect=1))

    def test_files_without_what_is_needed_are_refused(self):
        empty = self.file("empty.json", [])
        self.assertIn("no line with", self.plot("svm", "--table", empty, expect=1))
        self.assertIn("no line with", self.plot("perf", "--out", "x.png", empty, expect=1))
        self.assertIn("No such file", self.plot("svm", "--table", str(self.folder / "none"), expect=1))
        for command in ("svm", "consensus", "logreg"):
            self.assertIn(f"{command} needs --out, --table", self.plot(command, empty, expect=2))
        self.assertIn("no line with", self.plot("consensus", "--table", empty, expect=1))
        self.assertIn("no line with", self.plot("fish", "--out", "x.png", empty, expect=1))
        self.assertIn("no line with", self.plot("logreg", "--table", empty, expect=1))
        cut_off = self.file("cut_off.json", logreg_run("ring", 1)[:-1])
        self.assertIn(f"{cut_off}: no line with \"event\":\"final\"", self.plot("logreg", "--table", cut_off, expect=1))
        run = logreg_run("ring", 1)
        del run[-1]["sync_least_s"]
        partly = self.file("partly.json", run)
        self.assertIn(f"{partly}: 'sync_least_s' is missing", self.plot("logreg", "--table", partly, expect=1))
        self.assertIn("'pause' is none of", self.plot("consensus", "--y", "pause", "--table", empty, expect=2))
        self.assertIn("'0' is not a number", self.plot("fish", "--panels", "0", "--out", "x.png", empty, expect=2))
        fish = school_run(3)
        del fish[2]["velocities"]
        bad = self.file("fish.json", fish)
        self.assertIn(f"{bad}:3: 'velocities' is missing", self.plot("fish", "--out", "x.png", bad, expect=1))
        fish[2]["velocities"] = [[0, 0]]
        bad = self.file("fish.json", fish)
        self.assertIn(f"{bad}:3: the number of fish differs", self.plot("fish", "--out", "x.png", bad, expect=1))

    def test_traces_are_merged_on_one_time_axis(self):
        paths = [self.file(f"{rank}.json", [trace_of(rank, 100.0 + 10 * rank)]) for rank in (0, 1, 2)]
        out = self.folder / "merged.json"
        self.assertIn("3 events of 3 ranks, 3 dropped", self.plot("trace", "--out", str(out), *paths))
        merged = json.loads(out.read_text())
        self.assertEqual([event["ts"] for event in merged["traceEvents"]], [1.5, 11.5, 21.5])
        self.plot("trace", "--no-align", "--out", str(out), *paths)
        self.assertEqual([event["ts"] for event in json.loads(out.read_text())["traceEvents"]], [1.5, 1.5, 1.5])

    def test_what_is_no_trace_is_refused(self):
        good, again = (self.file(name, [trace_of(4, 0)]) for name in ("a.json", "b.json"))
        out = str(self.folder / "merged.json")
        self.assertIn("rank 4 as well", self.plot("trace", "--out", out, good, again, expect=1))
        bad = self.file("bad.json", ["{", "]"])
        self.assertIn(f"{bad}:2: malformed JSON", self.plot("trace", "--out", out, bad, expect=1))
        self.assertIn("not a trace", self.plot("trace", "--out", out, self.file("x.json", ["{}"]), expect=1))

    def test_overlap_counts_each_moment_of_communication_once(self):
        (self.folder / "run").mkdir()
        # 4 ms of 2 averages in the forward pass, 12 in the backward pass of which 2 are in both, 4 in step(). A barrier
        # and a part of another operation are no communication of their own.
        spans = [("neighbor-average", 2, 5), ("neighbor-average", 4, 6), ("all-reduce", 18, 28), ("all-reduce", 26, 34),
                 ("barrier", 7, 9), ("wait", 12, 14)]
        for rank in (0, 1):
            self.file(f"run/timeline-{rank}.json", timeline_of(4))
            self.file(f"run/trace-{rank}.json", operations_of(4, spans))
        lines = self.plot("overlap", "--table", f"both={self.folder / 'run'}").splitlines()
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[1], r"^both +2 +2 +35\.0 +10\.0 +20\.0 +5\.0 +4\.0 +20\.0 +20% +60% +20% +4\.0$")
        lines = self.plot("overlap", "--table", "--skip", "0", f"both={self.folder / 'run'}").splitlines()
        self.assertRegex(lines[1], r"^both +2 +4 ")

    def test_overlap_refuses_what_it_cannot_count(self):
        (self.folder / "run").mkdir()
        run = str(self.folder / "run")
        refused = lambda *more: self.plot("overlap", "--table", run, *more, expect=1)
        self.assertIn(f"{run}: no timeline-RANK.json", refused())
        timeline = self.file("run/timeline-0.json", timeline_of(3))
        self.assertIn("trace-0.json: No such file", refused())
        trace = self.file("run/trace-0.json", operations_of(3, [], dropped=7))
        self.assertIn(f"{trace}: 7 events are missing", refused())
        self.file("run/trace-0.json", ["{}"])
        self.assertIn("not a trace", refused())
        self.file("run/trace-0.json", operations_of(3, []))
        self.assertIn(f"{timeline}: 3 steps, of which the first 3 don't count", refused("--skip", "3"))
        self.assertRegex(self.plot("overlap", "--table", run).splitlines()[1], r" 0\.0 +- +- +- +0\.0$")
        self.assertIn("needs --out, --table or both", self.plot("overlap", run, expect=2))
        self.file("run/timeline-0.json", [line for line in timeline_of(3) if "FORWARD" not in line])
        self.assertIn("step 0 is not FORWARD, BACKWARD and STEP", refused())
        self.file("run/timeline-0.json", ["[", "{"])
        self.assertIn("malformed JSON", refused())

    def test_groups_need_figures_of_a_time_that_is_there(self):
        empty = self.file("empty.json", [{"what": "groups", "table": "scale"}])
        self.assertIn("no line with", self.plot("groups", "--out", "x.png", empty, expect=1))
        two = self.file("two.json", groups_run(3300) + groups_run(6600))
        refused = self.plot("groups", "--out", "x.png", "--compute-us", "13000", two, expect=1)
        self.assertIn("no computation of 13000 us, but of 3300, 6600", refused)
        self.assertIn("--compute-us", self.plot("groups", "--out", "x.png", "--compute-us", "0", two, expect=2))
        lines = groups_run(3300)
        del lines[1]["compute_us"]
        bad = self.file("bad.json", lines)
        self.assertIn(f"{bad}:2: 'compute_us' is missing", self.plot("groups", "--out", "x.png", bad, expect=1))

    def test_installed_it_finds_its_parts(self):
        binaries, parts = self.folder / "bin", self.folder / "share" / "dunlin" / "plot"
        binaries.mkdir()
        parts.mkdir(parents=True)
        installed = shutil.copy(PROGRAM, binaries)
        for part in pathlib.Path(PROGRAM).parent.glob("*.py"):
            shutil.copy(part, parts)
        path = self.file("a.json", svm_run(1, 1e6))
        done = subprocess.run([installed, "svm", "--table", path], text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(self.folder.rglob("__pycache__")), [])


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
