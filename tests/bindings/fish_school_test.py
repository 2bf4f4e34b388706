"""The example of a school of fish, in a small run: fish_school_test.py DUNLIN_RUN FISH_SCHOOL"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

RUN, EXAMPLE = sys.argv[1:3]
del sys.argv[1:3]

try:
    import matplotlib
except ImportError:
    matplotlib = None


def run(*options, ranks=3):
    """(nearest, farthest, error of the estimates) at each reported moment."""
    found = subprocess.run([RUN, "-n", str(ranks), sys.executable, EXAMPLE, *options], capture_output=True, text=True,
                           timeout=150)
    if found.returncode != 0:
        raise AssertionError(found.stdout + found.stderr)
    number = r"(\d+\.\d\d)"
    return [tuple(map(float, numbers)) for numbers in
            re.findall(f"is {number} to {number} m away, estimates are off by {number} m", found.stdout)]


class FishSchoolTest(unittest.TestCase):
    def test_fish_encircle_the_predator(self):
        moments = run("--fish", "4", "--steps", "240")
        self.assertEqual(len(moments), 5)
        self.assertGreater(moments[0][2], 0.5)
        nearest, farthest, error = moments[-1]
        self.assertLess(error, 0.2)
        self.assertGreater(nearest, 1.5)
        self.assertLess(farthest, 2.5)

    def test_fish_flee(self):
        moments = run("--fish", "4", "--steps", "240", "--behavior", "disperse")
        self.assertLess(moments[0][0], 2)
        self.assertGreater(moments[-1][0], 5)

    @unittest.skipIf(matplotlib is None, "matplotlib is missing")
    def test_the_figure(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "school.svg")
            run("--fish", "2", "--steps", "8", "--figure", path, ranks=2)
            with open(path, encoding="utf-8") as file:
                self.assertIn("<svg", file.read())


if __name__ == "__main__":
    unittest.main(verbosity=2)
