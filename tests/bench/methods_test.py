"""bench/peers/methods: both programs reach the loss, also with a slow worker, and tell their steps and bytes.

    methods_test.py BUILD_DIR SCRIPT
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import LOADED, JobTest  # noqa: E402

BUILD, SCRIPT = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
del sys.argv[1:3]
PARAMETERS = 25_578  # of the small network
WORKERS = 2


class Methods(JobTest):
    def check(self, program, *methods):
        path = self.path("figures.json")
        # Some ten steps reach this loss.
        done = subprocess.run(
            [sys.executable, SCRIPT, "--build", BUILD, "--python", sys.executable, "--programs", program, "--scenarios",
             "alike", "slow", "--workers", str(WORKERS), "--target", "2.2", "--longest", "60", "--json-out", path,
             "--methods", *methods], text=True, capture_output=True, timeout=LOADED * 100)
        text = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, text)
        found = json.loads(pathlib.Path(path).read_text())
        self.assertEqual(list(found), [f"{program}: {label}" for label in methods])
        for label, row in found.items():
            for scenario, figures in row.items():
                with self.subTest(label=label, scenario=scenario):
                    self.assertEqual(figures["outcome"], "reached", text)
                    self.assertLessEqual(figures["loss"], 2.3)
                    # In each step a worker sends about as many bytes as the model has, or receives as many from a server.
                    steps = figures["seconds"] * figures["rate"]
                    self.assertGreater(figures["bytes"], 0.5 * steps * WORKERS * 4 * PARAMETERS, text)

    def test_dunlin_cnn(self):
        self.check("dunlin-cnn", "all-reduce", "parameter-server")

    def test_pytorch(self):
        if subprocess.run([sys.executable, "-c", "import torch, dunlin.torch"], capture_output=True,
                          env={**os.environ, "PYTHONPATH": str(BUILD / "bindings/python")}).returncode != 0:
            self.skipTest("PyTorch, networkx, or a build with them is missing")
        self.check("PyTorch", "all-reduce", "parameter-server", "DDP over gloo")


if __name__ == "__main__":
    unittest.main(verbosity=2)
