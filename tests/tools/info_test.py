#!/usr/bin/env python3
"""dunlin-info: its JSON has what scripts need, its text is for people, and wrong settings are errors.

    info_test.py PROGRAM FOLDER

FOLDER holds the stand-in for CUDA's driver, libcuda.so.1.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import settings_table

PROGRAM = ""
STAND_IN = ""


def info(*arguments, **settings):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DUNLIN_")}
    return subprocess.run([PROGRAM, *arguments], text=True, capture_output=True, env={**clean, **settings})


class InfoTest(unittest.TestCase):
    def test_json_describes_the_host(self):
        report = json.loads(info("--json").stdout)
        self.assertGreaterEqual(report["host"]["usable_cores"], 1)
        self.assertGreater(report["memory"]["total_bytes"], 0)
        self.assertIn("lo", report["network"])
        self.assertTrue(report["transports"]["shm"]["works"], report["transports"])
        self.assertIn("DUNLIN_DEADLINE", report["config"])

    def test_it_says_with_which_containers_memory_can_be_shared(self):
        report = json.loads(info("--json").stdout)["containers"]
        self.assertTrue(report["can_share_memory"], report)
        network = str(os.stat("/proc/self/ns/net").st_ino)
        self.assertEqual(report["network_namespace"], network)
        self.assertIn(f"network namespace {network}", report["shares_memory_with"])
        self.assertIn("DUNLIN_SHM_DIR", report["remedy"])
        with tempfile.TemporaryDirectory() as folder:
            report = json.loads(info("--json", DUNLIN_SHM_DIR=folder).stdout)["containers"]
            self.assertIn(folder, report["shares_memory_with"])
            self.assertEqual(os.listdir(folder), [])
        report = json.loads(info("--json", DUNLIN_SHM_DIR="/no/such/folder").stdout)["containers"]
        self.assertFalse(report["can_share_memory"])
        self.assertIn("/no/such/folder", report["reason"])

    def test_json_is_one_line_and_goes_to_a_file_beside_the_text(self):
        self.assertEqual(info("--json").stdout.count("\n"), 1)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "info.json")
            self.assertIn("usable cores", info("--json-out", path).stdout)
            with open(path, encoding="utf-8") as file:
                self.assertIn("host", json.load(file))

    def test_the_build_says_what_it_contains(self):
        report = json.loads(info("--json").stdout)
        build = report["build"]
        self.assertEqual(info("--version").stdout, f"dunlin-info {build['version']}\n")
        self.assertRegex(build["version"], r"^\d+\.\d+\.\d+$")
        self.assertRegex(build["compiler"], r"^(gcc|clang) \d+")
        self.assertIn("shm", build["transports"])
        for name in ("ucx", "verbs"):
            self.assertEqual(name in build["transports"], build["optional_parts"][name])
            reason = report["transports"][name].get("reason") or ""
            self.assertEqual("this build is without" in reason, not build["optional_parts"][name], reason)

    def test_a_transport_that_is_not_used_is_still_tried(self):
        report = json.loads(info("--json", DUNLIN_TRANSPORTS="ucx").stdout)
        self.assertTrue(report["transports"]["shm"]["works"])
        self.assertIn("leaves it out", report["transports"]["shm"]["preference"])
        for transport in report["transports"].values():
            self.assertTrue(transport["works"] or transport["reason"])

    def test_rdma_says_why_there_is_none(self):
        rdma = json.loads(info("--json").stdout)["rdma"]
        if not rdma["devices"]:
            self.assertEqual(rdma["addresses"], [])
            self.assertRegex(rdma["reason"], "no RDMA|this build has no libibverbs|finds no device")
            self.assertRegex(rdma["remedy"], "modprobe|install")
            self.assertIn(rdma["reason"], info().stdout)
        for device in rdma["devices"].values():
            self.assertTrue("reason" in device or device["ports"], device)

    def test_gpus_say_why_there_is_none_or_what_each_can_do(self):
        gpus = json.loads(info("--json").stdout)["gpus"]
        if not gpus["devices"]:
            self.assertRegex(gpus["reason"], "CUDA")
            self.assertIn("driver", gpus["remedy"])
            self.assertIn(gpus["reason"], info().stdout)
        for gpu in gpus["devices"].values():
            self.assertGreater(gpu["memory_bytes"], 0)
            for way in (gpu["dma_buf"], gpu["nvidia_peermem"], gpu["staging"]):
                self.assertTrue(way["works"] or way["reason"])

    def test_without_a_driver_the_gpus_say_what_to_do(self):
        with tempfile.TemporaryDirectory() as folder:
            # The loader finds this file first, and it is no library.
            with open(os.path.join(folder, "libcuda.so.1"), "wb"):
                pass
            gpus = json.loads(info("--json", LD_LIBRARY_PATH=folder).stdout)["gpus"]
        self.assertEqual(gpus["devices"], {})
        self.assertIn("no CUDA driver", gpus["reason"])
        self.assertIn("nvidia-driver", gpus["remedy"])
        kernels = gpus["kernels_of_this_build"]
        self.assertTrue(kernels["works"] or "nvcc" in kernels["reason"] and "-Dcuda" in kernels["remedy"])

    def gpus(self, **settings):
        report = json.loads(info("--json", LD_LIBRARY_PATH=STAND_IN, **settings).stdout)["gpus"]
        for gpu in report["devices"].values():
            ways = [gpu[name] for name in ("cuda_ipc", "kernels", "gpudirect_rdma", "dma_buf", "nvidia_peermem")]
            for way in ways + list(gpu.get("peer_access_to", {}).values()):
                self.assertTrue(way["works"] or way["reason"] and way["remedy"], way)
        return report

    def test_two_gpus_say_what_they_can_do(self):
        report = self.gpus()
        self.assertEqual(report["driver"]["cuda"], "13.0")
        self.assertEqual(list(report["devices"]), ["0", "1"])
        for number, address in (("0", "0000:3b:00.0"), ("1", "0000:af:00.0")):
            gpu = report["devices"][number]
            self.assertEqual(gpu["name"], "Fake A1")
            self.assertEqual(gpu["pci_bus_id"], address)
            self.assertEqual(gpu["memory_bytes"], 1 << 34)
            self.assertTrue(gpu["cuda_ipc"]["works"])
            self.assertTrue(gpu["kernels"]["works"])
            self.assertTrue(gpu["peer_access_to"]["1" if number == "0" else "0"]["works"])
            self.assertFalse(gpu["gpudirect_rdma"]["works"])
        text = info(LD_LIBRARY_PATH=STAND_IN).stdout
        for words in ("Fake A1", "0000:af:00.0", "16 GiB", "cuda ipc", "peer access to"):
            self.assertIn(words, text)

    def test_gpus_say_what_they_cannot_do(self):
        gpu = self.gpus(FAKE_CUDA_PEER_ACCESS="0")["devices"]["0"]
        self.assertIn("GPU 0 cannot access the memory of GPU 1", gpu["peer_access_to"]["1"]["reason"])
        self.assertNotIn("peer_access_to", self.gpus(FAKE_CUDA_DEVICES="1")["devices"]["0"])
        self.assertIn("finds no device", self.gpus(FAKE_CUDA_DEVICES="0")["reason"])
        # The first call takes a context, as it does where another process has the GPU to itself.
        gpu = self.gpus(FAKE_CUDA_FAIL="1")["devices"]["0"]
        self.assertIn("cuDevicePrimaryCtxRetain", gpu["cuda_ipc"]["reason"])

    def test_how_gpu_memory_is_reached_can_be_forced(self):
        self.assertIn("forces one way", info(DUNLIN_VERBS_GPU="staging").stdout)
        wrong = info(DUNLIN_VERBS_GPU="magic")
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("DUNLIN_VERBS_GPU=magic: give one of auto", wrong.stderr)
        self.assertIn("dmabuf, peermem, staging", wrong.stderr)

    def test_the_page_of_settings_is_up_to_date(self):
        written = (pathlib.Path(__file__).parents[2] / "runtime" / "SETTINGS.md").read_text(encoding="utf-8")
        self.assertEqual(written, settings_table.page(PROGRAM), "make it again: tests/tools/settings_table.py")

    def test_configuration_says_what_is_set_and_hides_secrets(self):
        text = info("--config", DUNLIN_DEADLINE="1.234s", DUNLIN_JOB_SECRET="hunter2").stdout
        self.assertIn("DUNLIN_DEADLINE=1234ms  (set)", text)
        self.assertIn("DUNLIN_WAIT=auto  (default)", text)
        self.assertIn("DUNLIN_HEARTBEAT=200ms  (default)", text)
        self.assertIn("DUNLIN_FUSION_THRESHOLD=16KiB  (default)", text)
        self.assertNotIn("hunter2", text)

    def test_wrong_settings_and_options_have_exit_codes(self):
        done = info(DUNLIN_DEADLINE="soon")
        self.assertEqual(done.returncode, 1)
        self.assertIn("DUNLIN_DEADLINE=soon: give a time", done.stderr)
        self.assertIn("DUNLIN_DEADLINE=8: give a unit", info(DUNLIN_DEADLINE="8").stderr)
        self.assertEqual(info("--no-such-option").returncode, 2)

    def test_output_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([PROGRAM, "--config"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output", done.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    STAND_IN = sys.argv.pop(1)
    unittest.main()
