"""bench/peers/builds: a build beside itself, and beside none."""

import re
import subprocess
import sys
import tempfile
import unittest

BUILD, SCRIPT = sys.argv[1:3]
del sys.argv[1:3]


def compare(base):
    result = subprocess.run([sys.executable, SCRIPT, "--base", base, "--build", BUILD, "--repetitions", "1",
                             "--only", "barrier", "--poll", "wait"], capture_output=True, text=True, check=False)
    return result.stdout


class Builds(unittest.TestCase):
    def test_both_columns_have_figures(self):
        rows = re.findall(r"^\| (\d) ranks, barrier \| ([\d.,]+) \| ([\d.,]+) \(([\d.]+): .*\) \|$", compare(BUILD), re.M)
        self.assertEqual([row[0] for row in rows], ["2", "4"])
        for _, base, new, ratio in rows:
            self.assertAlmostEqual(float(new.replace(",", "")) / float(base.replace(",", "")), float(ratio), delta=0.02)

    def test_a_base_without_programs_is_named(self):
        with tempfile.TemporaryDirectory() as empty:
            output = compare(empty)
        self.assertIn("| 2 ranks, barrier | failed |", output)
        self.assertRegex(output, "Failed: base, 2 ranks, barrier: .*dunlin-run")


if __name__ == "__main__":
    unittest.main(verbosity=2)
