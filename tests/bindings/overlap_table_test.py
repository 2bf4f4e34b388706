"""bench/peers/overlap and dunlin-plot overlap: the averages of each kind of training are where they belong.

    overlap_table_test.py BUILD_DIR SCRIPT DUNLIN_PLOT

What is checked is the pass in which averages begin, which doesn't depend on how fast anything is.
"""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

BUILD, SCRIPT, PLOT = (pathlib.Path(path).resolve() for path in sys.argv[1:4])
del sys.argv[1:4]
sys.dont_write_bytecode = True
sys.path.insert(0, str(PLOT.parent))
import plot_overlap  # noqa: E402

RANKS, STEPS, LAYERS, WIDTH = 3, 5, 3, 520  # as in torch_overlap_test.py: a buffer for each layer, and one for a bias


class Table(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.figure = cls.folder / "step.svg" if importlib.util.find_spec("matplotlib") else None
        command = [SCRIPT, "--build", BUILD, "--python", sys.executable, "--ranks", RANKS, "--steps", STEPS, "--layers", LAYERS,
                   "--width", WIDTH, "--batch", 4, "--folder", cls.folder]
        command += ["--out", cls.figure] if cls.figure else []
        done = subprocess.run([sys.executable, *map(str, command)], text=True, capture_output=True)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        cls.output = done.stdout

    def passes_of_begins(self, kind):
        """{pass in which averages begin: how many}, which is the same in all counted steps of all ranks."""
        found = []
        for rank in plot_overlap.read_run(str(self.folder / kind), 2):
            for step in rank:
                counts = {}
                for begin, _ in step.operations:
                    name = next(name for name, (first, last) in step.passes.items() if first <= begin < last)
                    counts[name] = counts.get(name, 0) + 1
                found.append(counts)
        self.assertEqual(len(found), RANKS * (STEPS - 2))
        for counts in found:
            self.assertEqual(counts, found[0])
        return found[0]

    def test_averages_begin_where_they_belong(self):
        self.assertEqual(self.passes_of_begins("atc"), {"STEP": 1})
        self.assertEqual(self.passes_of_begins("atc-overlap"), {"BACKWARD": LAYERS + 1})
        self.assertEqual(self.passes_of_begins("awc"), {"FORWARD": 1})
        self.assertEqual(list(self.passes_of_begins("ddp")), ["BACKWARD"])

    def test_the_table(self):
        lines = {line.split("  ")[0]: line for line in self.output.splitlines()}
        for label in ("ATC", "ATC, overlap", "AWC", "DDP"):
            self.assertRegex(lines[label], rf"^{label} +{RANKS} +{STEPS - 2} +\d")
        self.assertRegex(lines["ATC"], r" 0% +0% +100% +\d+\.\d$")

    def test_the_picture(self):
        if self.figure is None:
            self.skipTest("there is no matplotlib")
        text = self.figure.read_text()
        for label in ("ATC, overlap", "AWC", "DDP", "average in progress", "backward"):
            self.assertIn(label, text)


if __name__ == "__main__":
    unittest.main()
