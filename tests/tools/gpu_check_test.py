#!/usr/bin/env python3
"""tools/gpu-check on the stand-in for CUDA's driver: its report, its failures, and its bundle.

    gpu_check_test.py GPU_CHECK BUILD
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import thorough  # noqa: E402

GPU_CHECK = BUILD = ""
LARGEST_BUNDLE = 40 << 20


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def check(self, *arguments, **variables):
        """Returns what it printed, its exit code and its report."""
        file = self.folder / "report.json"
        done = subprocess.run([GPU_CHECK, "--build", BUILD, "--no-build", "--json-out", file, *arguments], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **variables}, check=False)
        return done.stdout, done.returncode, json.loads(file.read_text(encoding="utf-8"))

    def test_tests_and_figures_are_reported(self):
        text, code, report = self.check("--stand-in", "--quick")
        self.assertEqual(code, 0, text)
        self.assertIn("gpu-check: all is well", text)
        self.assertTrue(report["ok"])
        self.assertTrue(report["stand_in"])
        self.assertEqual(report["gpus"]["devices"]["0"]["name"], "Fake A1")
        self.assertEqual([row["program"] for row in report["tests"]],
                         ["test_collectives", "test_shm_gpu", "test_shm_gpu", "test_gpu_collective", "test_gpu_collective",
                          "test_cnn_gpu", "test_cnn_gpu"])
        for row in report["tests"]:
            self.assertGreater(row["passed"], 0)
            self.assertEqual(row["failed"], 0)
        self.assertEqual({row["bench"] for row in report["figures"]},
                         {"put", "get", "put-notify", "all-reduce", "all-gather"})
        for row in report["figures"]:
            self.assertEqual(row["memory"], "cuda")
            self.assertEqual({gpu["number"] for gpu in row["gpus"]}, {0})
            self.assertRegex(text, rf"{row['bench']} .* {row['size']} ")
        self.assertEqual([(row["ranks"], row["method"]) for row in report["trainings"]],
                         [(1, "all-reduce"), (2, "all-reduce"), (2, "local-sgd"), (2, "stochastic"), (2, "partial"),
                          (4, "all-reduce")])
        for row in report["trainings"]:
            self.assertEqual(row["device"], "cuda:0")
            self.assertGreater(row["images_per_s"], 0)
            self.assertRegex(text, rf"{row['model']} +{row['method']} +{row['ranks']} ")

    @thorough
    def test_it_may_go_on_after_a_failure(self):
        text, code, report = self.check("--stand-in", "--quick", "--keep-going", "--steps", "figures,trainings",
                                        FAKE_CUDA_CORRUPT="3")
        self.assertEqual(code, 1)
        self.assertEqual(report["tests"], [], "a step that was not asked for")
        self.assertEqual({row["method"] for row in report["trainings"]}, {"all-reduce", "local-sgd", "stochastic", "partial"})
        failed = re.findall(r"FAILED +[0-9.]+ s  (dunlin-perf .*)", text)
        self.assertGreater(len(failed), 1)
        for step in failed:
            log = pathlib.Path(BUILD) / "gpu-check-logs" / (re.sub(r"[^\w.-]+", "_", step) + ".log")
            self.assertIn("wrong", log.read_text(encoding="utf-8"))
            self.assertIn(step, report["failure"])

    def test_wrong_data_fails_with_the_name_of_the_step(self):
        text, code, report = self.check("--stand-in", "--quick", FAKE_CUDA_CORRUPT="3")
        self.assertEqual(code, 1)
        self.assertRegex(text, r"FAILED +[0-9.]+ s  test_")
        self.assertIn("gpu-check: FAILED: test_", text)
        self.assertFalse(report["ok"])
        self.assertIn("exit code 1", report["failure"])
        self.assertGreater(sum(row["failed"] for row in report["tests"]), 0)

    def test_without_a_driver_it_says_what_to_do(self):
        # The loader finds this file first, and it is no library.
        (self.folder / "libcuda.so.1").touch()
        text, code, report = self.check(LD_LIBRARY_PATH=str(self.folder))
        self.assertEqual(code, 1)
        self.assertIn("FAILED: no CUDA driver: ", text)
        self.assertIn("--stand-in", report["failure"])
        self.assertEqual(report["steps"], {})

    def test_it_ends_in_time(self):
        text, code, report = self.check("--stand-in", "--limit", "0.3")
        self.assertEqual(code, 1)
        self.assertIn("not done after 0.3 s in all", text)
        self.assertFalse(report["ok"])

    def test_the_bundle_is_small_and_builds_programs(self):
        bundle = self.folder / "bundle"
        made = subprocess.run([GPU_CHECK, "--bundle", bundle], text=True, capture_output=True, check=False)
        if "not installed" in made.stderr or "Debian packages" in made.stderr:
            self.skipTest(made.stderr.strip())
        self.assertEqual(made.returncode, 0, made.stderr)
        size = sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file())
        self.assertLess(size, LARGEST_BUNDLE)
        self.assertIn("isn't empty", subprocess.run([GPU_CHECK, "--bundle", bundle], text=True, capture_output=True,
                                                    check=False).stderr)
        # It works at another place, without the packages of this host.
        moved = self.folder / "moved"
        shutil.move(bundle, moved)
        variables = {**os.environ, "PKG_CONFIG_LIBDIR": str(moved / "lib/pkgconfig"), "LD_LIBRARY_PATH": str(moved / "lib")}
        names = ["fmt", "spdlog", "libsodium", "libhwy", "hwloc", "CLI11", "nlohmann_json", "eigen3", "gmock", "gtest_main"]
        found = subprocess.run([moved / "bin/pkg-config", "--cflags", "--libs", *names], text=True, capture_output=True,
                               env=variables, check=True).stdout.split()
        for path in re.findall(r"-[IL](\S+)", " ".join(found)):
            self.assertTrue(pathlib.Path(path).resolve().is_relative_to(moved.resolve()), path)
        program = self.folder / "program"
        program.with_suffix(".cc").write_text(
            "#include <fmt/format.h>\n#include <sodium.h>\n"
            "int main() { fmt::print(\"{}\\n\", sodium_init() >= 0 ? \"built\" : \"\"); }\n", encoding="utf-8")
        subprocess.run(["g++", "-std=c++20", program.with_suffix(".cc"), "-o", program, *found], env=variables, check=True)
        self.assertEqual(subprocess.run([program], text=True, capture_output=True, env=variables, check=True).stdout, "built\n")


if __name__ == "__main__":
    GPU_CHECK, BUILD = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
