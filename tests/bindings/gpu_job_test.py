"""Whole jobs of the Python package on memory of a GPU: missing drivers, mismatches, failures, deaths.

    gpu_job_test.py DUNLIN_RUN FAKE_CUDA_FOLDER [TEST...]

The GPU is the stand-in for CUDA's driver in that folder.
"""

import ctypes.util
import os
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import Job, lines_by_rank  # noqa: E402

RUN = sys.argv.pop(1)
FAKE = sys.argv.pop(1)
RANK = os.path.join(os.path.dirname(__file__), "gpu_rank.py")
# What a rank that cannot pin memory says at some time.
PINS_NOTHING = r"dunlin\[\d+\] warning: short calls on memory of GPU "


def run(part, ranks=2, deadline=120, code=0, folder=FAKE, options=(), **env):
    """{rank: its lines} of a job of gpu_rank.py, and all that it printed."""
    job = Job([RUN, "-n", ranks, *options, sys.executable, RANK, part],
              env={"DUNLIN_DEADLINE": f"{deadline}s", "LD_LIBRARY_PATH": folder, **env})
    found = job.wait(240)
    if code is not None and found != code:
        raise AssertionError(f"exit code {found}:\n{job.text()}")
    return lines_by_rank(job, ranks, without=PINS_NOTHING), job.text()


class GpuJobTest(unittest.TestCase):
    def test_a_missing_driver_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "libcuda.so.1"), "w"):
                pass  # found before any other, and no library
            lines, text = run("without_driver", folder=folder)
        for own in lines.values():
            self.assertEqual(len(own), 3, text)
            for line in own[:2]:
                self.assertRegex(line, "refused: all_reduce: no CUDA driver: .*libcuda.so.1", text)
            self.assertEqual(own[2], "sum 2", text)

    def test_a_driver_that_is_too_old_is_named(self):
        library = re.search(r"\S+$", ctypes.util.find_library("m")).group()
        path = next(path for path in (os.path.join(folder, library) for folder in (
            "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"))
                    if os.path.exists(path))
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(path, os.path.join(folder, "libcuda.so.1"))
            lines, text = run("without_driver", folder=folder)
        for own in lines.values():
            for line in own[:2]:
                self.assertRegex(line, "refused: all_reduce: .*libcuda.so.1 is too old: it has no cuInit", text)

    def test_a_job_without_devices(self):
        lines, text = run("without_driver", FAKE_CUDA_DEVICES="0")
        self.assertRegex(lines[0][0], "refused: all_reduce: .*no device", text)

    def test_members_with_host_memory_are_found(self):
        lines, text = run("mixed")
        for own in lines.values():
            self.assertRegex(own[0], "refused: .*make different calls.*the first call on memory of a GPU", text)

    def test_calls_that_differ_are_found(self):
        lines, text = run("different")
        for own in lines.values():
            self.assertRegex(own[0], "refused: .*make different calls.*(all-gather.*all-reduce|all-reduce.*all-gather)",
                             text)

    def test_members_without_a_transport_for_the_memory_are_told(self):
        lines, text = run("unreachable", ranks=3, DUNLIN_TRANSPORTS="shm,tcp")
        for own in lines.values():
            self.assertEqual(own[0], own[1], text)
            self.assertRegex(own[0], "refused: memory of GPUs: .*tcp cannot access cuda memory", text)
            self.assertEqual(own[2], "sum 3", text)

    def test_a_member_without_a_usable_gpu_is_named(self):
        lines, text = run("unusable")
        failing = ("cuModuleLoadData", "cuStreamCreate", "cuMemAlloc", "cuEventCreate")
        for number, name in enumerate(failing):
            self.assertRegex(lines[0][number], "refused: calls on memory of GPUs failed at rank 1", text)
            self.assertRegex(lines[1][number], f"refused: .*{name}", text)
        for own in lines.values():
            self.assertEqual(own[-2:], ["2", "0 allocations are left"], text)

    def test_a_failed_copy_is_an_error_at_that_member(self):
        lines, text = run("failing")
        for line in lines[1][:2]:
            self.assertRegex(line, "IoError: .*a copy on the GPU: cuMemcpyAsync", text)
        for line in lines[0][:2]:
            self.assertRegex(line, "(DeadlineExceeded|PeerStalled)Error: ", text)
        self.assertEqual((lines[0][2], lines[1][2]), ("sum 2", "sum 2"), text)

    def test_a_stream_that_stands_still_ends_a_wait_in_time(self):
        lines, text = run("standing")
        self.assertRegex(lines[0][0], "expired: .*copies of all-reduce on its GPU, or the streams", text)
        self.assertRegex(lines[1][0], "expired: .*from rank [01]", text)
        self.assertEqual((lines[0][1], lines[1][1]), ("2", "2"), text)

    def test_a_death_is_reported(self):
        lines, text = run("killed", ranks=3, code=None, options=["--keep-going"], DUNLIN_HEARTBEAT="60s")
        for rank in (0, 2):
            self.assertEqual(lines[rank], ["peer 1 dead"] * 2, text)

    def test_memory_in_use_is_kept_after_a_death(self):
        lines, text = run("killed_while_the_memory_is_in_use", code=None, options=["--keep-going"],
                          DUNLIN_HEARTBEAT="60s")
        self.assertIn(lines[0], (["peer 1 dead"], ["peer 1 dead", "in use True", "peer 1 dead"]), text)

    def test_the_job_ends_with_calls_in_progress(self):
        lines, text = run("left_open")
        for own in lines.values():
            self.assertEqual(own, ["2", "closed"], text)

    def test_a_copy_may_come_after_the_end_of_the_job(self):
        lines, text = run("left_behind", deadline=5)
        for own in lines.values():
            self.assertEqual(own[-3:], ["left in progress", "1 pinned", "alive"], text)

    def test_a_member_that_cannot_pin_memory_makes_no_call_block(self):
        lines, text = run("unpinnable")
        for own in lines.values():
            self.assertEqual(own[-2:], ["0 copies of pageable memory", "2"], text)

    def test_models_in_use_are_kept_after_a_death(self):
        lines, text = run("models_killed", code=None, options=["--keep-going"], DUNLIN_HEARTBEAT="60s")
        self.assertEqual(lines[0], ["in use True", "peer 1 dead"], text)

    def test_a_model_whose_copy_fails_is_averaged_at_no_rank(self):
        lines, text = run("models_not_copied", deadline=3, code=None, options=["--keep-going"])
        # Warnings may come before the errors.
        self.assertRegex("\n".join(lines[0]), "IoError: .*cuEventQuery", text)
        self.assertRegex("\n".join(lines[1]), "(DeadlineExceeded|PeerStalled|PeerDead)Error: ", text)
        self.assertNotIn("no error", text)

    def test_the_job_ends_with_averages_in_progress(self):
        lines, text = run("models_left_open")
        for own in lines.values():
            self.assertEqual(own, ["1"] * 3, text)

    def test_a_copy_of_a_model_may_come_after_the_end_of_the_job(self):
        lines, text = run("models_left_behind", deadline=2)
        for own in lines.values():
            self.assertEqual(own, ["left in progress", "alive"], text)

    def test_any_call_of_the_driver_may_fail(self):
        self.expect_ends("chaos", range(1, 160, 20))

    def test_any_call_of_the_driver_may_fail_in_averages_of_models(self):
        self.expect_ends("models_chaos", range(1, 240, 30))

    def expect_ends(self, part, failing_calls):
        for failing in failing_calls:
            lines, text = run(part, code=None, deadline=5, options=["--keep-going"], FAKE_CUDA_FAIL=str(failing),
                              FAKE_CUDA_DELAY_US="100")
            for own in lines.values():
                self.assertNotIn("wrong", " ".join(own), text)
                if own != ["ended"]:
                    # The driver failed while the program itself made its array.
                    self.assertIn("OSError: CUDA returned", " ".join(own), text)


if __name__ == "__main__":
    unittest.main()
