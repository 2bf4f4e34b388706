#!/usr/bin/env python3
"""dunlin-info with RDMA devices, and its messages if they cannot be used. To be run in a guest of tools/softroce.

    info_test.py DUNLIN_INFO DUNLIN_RUN DUNLIN_SVM
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

INFO = RUN = SVM = ""
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


def shell(command):
    subprocess.run(command, shell=True, check=True)


def limited(kibibytes, *command, timeout=60, **settings):
    """Runs it with that limit on locked memory, and without CAP_IPC_LOCK."""
    script = f'ulimit -l {kibibytes}; exec setpriv --bounding-set -ipc_lock "$@"'
    return subprocess.run(["bash", "-c", script, "bash", *command], text=True, capture_output=True, timeout=timeout,
                          check=False, env={**os.environ, **settings})


def report(*under, **settings):
    done = subprocess.run([*under, INFO, "--json"], text=True, capture_output=True, check=True, timeout=60,
                          env={**os.environ, **settings})
    return json.loads(done.stdout)


def ports(rdma):
    return {name: device["ports"]["1"] for name, device in rdma["devices"].items()}


class Devices(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.report = report()
        cls.rdma = cls.report["rdma"]

    def test_addresses_are_what_the_transport_uses(self):
        self.assertEqual(
            [(each["device"], each["port"], each["gid_index"], each["ip"]) for each in self.rdma["addresses"]],
            [("rxe0", 1, 1, "10.77.0.1"), ("rxe1", 1, 1, "10.77.0.2")])
        self.assertNotIn("reason", self.rdma)
        self.assertTrue(self.report["transports"]["verbs"]["works"])

    def test_facts_of_devices(self):
        self.assertEqual(list(self.rdma["devices"]), ["rxe0", "rxe1"])
        for device in self.rdma["devices"].values():
            self.assertEqual(device["node_type"], "InfiniBand channel adapter")
            self.assertIn("InfiniBand", device["transport"])
            self.assertEqual(device["vendor_id"], "0xffffff")
            self.assertIn("HCA", device["atomics"])
            self.assertIn("not known", device["distance"])  # a device of software
            # rdma_rxe of this kernel does not have these.
            self.assertEqual(device["on_demand_paging"], "none")
            self.assertEqual(device["dma_buf"], "no")
            for limit in ("max_qp", "max_mr", "max_mr_size_bytes", "max_qp_wr", "max_sge", "max_rd_atom"):
                self.assertGreater(device["limits"][limit], 0, limit)
            self.assertGreaterEqual(device["limits"]["inline_bytes"], 128)

    def test_facts_of_ports(self):
        for number, (name, port) in enumerate(ports(self.rdma).items()):
            folder = pathlib.Path(f"/sys/class/infiniband/{name}/ports/1")
            self.assertEqual(port["state"], "active")
            self.assertEqual(port["link_layer"], "Ethernet")
            self.assertEqual(port["active_mtu_bytes"], 4096)
            rate = (folder / "rate").read_text(encoding="ascii")
            self.assertRegex(rate, rf"^{port['speed_gbit_s']:g} Gb/sec \({re.escape(port['width'])}\)")
            self.assertNotIn("lid", port)
            self.assertEqual([gid["index"] for gid in port["gids"]], [0, 1])
            self.assertEqual(port["gids"][1], {"index": 1, "type": "RoCE v2", "gid": f"::ffff:10.77.0.{number + 1}",
                                               "interface": f"v{number}"})

    def test_text_has_the_same(self):
        text = subprocess.run([INFO], text=True, capture_output=True, check=True).stdout
        self.assertRegex(text, r"addresses +ip 10\.77\.0\.1, device rxe0, port 1, gid index 1, proximity on one NUMA node, as far as the kernel knows\n")
        self.assertRegex(text, r"gids +index 1, type RoCE v2, gid ::ffff:10\.77\.0\.2, interface v1\n")
        self.assertRegex(text, r"max mr size +16 EiB\n")

    def test_rails(self):
        rails = self.rdma["rails"]
        self.assertEqual(rails["ports"], ["rxe0 port 1"])
        self.assertIn("DUNLIN_VERBS_RAILS", rails["why"])
        self.assertIn("none", rails["striping"])
        wanted = report(DUNLIN_VERBS_RAILS="2", DUNLIN_VERBS_QP_COUNT="3")["rdma"]["rails"]
        self.assertEqual(wanted["ports"], ["rxe0 port 1", "rxe1 port 1"])
        self.assertIn("over 6 queue pairs", wanted["striping"])
        named = report(DUNLIN_VERBS_DEVICE="rxe1,rxe0:1")["rdma"]
        self.assertEqual(named["rails"]["ports"], ["rxe1 port 1", "rxe0 port 1"])
        self.assertIn("DUNLIN_VERBS_DEVICE names", named["rails"]["why"])
        self.assertIn("of 'mlx5_0'", report(DUNLIN_VERBS_DEVICE="rxe1,mlx5_0")["rdma"]["reason"])

    def test_device_of_the_configuration(self):
        one = report(DUNLIN_VERBS_DEVICE="rxe1")["rdma"]
        self.assertEqual([each["device"] for each in one["addresses"]], ["rxe1"])
        none = report(DUNLIN_VERBS_DEVICE="mlx5_0")["rdma"]
        self.assertIn("of 'mlx5_0'", none["reason"])
        self.assertIn("DUNLIN_VERBS_DEVICE", none["remedy"])
        self.assertNotIn("reason", ports(none)["rxe0"])


class Reasons(unittest.TestCase):
    def test_a_port_without_an_address(self):
        shell("ip -4 address flush dev v1")
        self.addCleanup(shell, "ip address add 10.77.0.2/24 dev v1")
        rdma = report()["rdma"]
        self.assertEqual([(each["device"], each["ip"]) for each in rdma["addresses"]],
                         [("rxe0", "10.77.0.1"), ("rxe1", "")])
        self.assertIn("no IPv4 address", ports(rdma)["rxe1"]["reason"])
        self.assertIn("dev v1", ports(rdma)["rxe1"]["remedy"])
        self.assertNotIn("reason", ports(rdma)["rxe0"])

    def test_a_device_that_may_not_be_opened(self):
        shell("chmod 600 /dev/infiniband/uverbs0")
        self.addCleanup(shell, "chmod 666 /dev/infiniband/uverbs0")
        rdma = report(*NOBODY)["rdma"]
        self.assertIn("Permission denied", rdma["devices"]["rxe0"]["reason"])
        self.assertIn("/dev/infiniband/uverbs", rdma["devices"]["rxe0"]["remedy"])
        self.assertEqual([each["device"] for each in rdma["addresses"]], ["rxe1"])
        shell("chmod 600 /dev/infiniband/uverbs1")
        self.addCleanup(shell, "chmod 666 /dev/infiniband/uverbs1")
        found = report(*NOBODY)
        for reason in (found["rdma"]["reason"], found["transports"]["verbs"]["reason"]):
            self.assertIn("rxe0 (cannot be opened: Permission denied), rxe1 (cannot be", reason)

    def test_a_connection_manager_that_may_not_be_used(self):
        shell("chmod 600 /dev/infiniband/rdma_cm")
        self.addCleanup(shell, "chmod 666 /dev/infiniband/rdma_cm")
        found = report(*NOBODY)
        self.assertIn("/dev/infiniband/rdma_cm can't be opened: Permission denied", found["rdma"]["reason"])
        self.assertIn("allow this user", found["rdma"]["remedy"])
        self.assertTrue(found["transports"]["verbs"]["works"])  # through the bootstrap
        with_it_only = report(*NOBODY, DUNLIN_VERBS_CONNECT="manager")["transports"]["verbs"]
        self.assertFalse(with_it_only["works"])
        self.assertIn("/dev/infiniband/rdma_cm", with_it_only["reason"])


class LockedMemory(unittest.TestCase):
    def expect_remedy(self, text):
        for word in ("ulimit -l unlimited", "/etc/security/limits.d", "LimitMEMLOCK=infinity", "--ulimit memlock=-1"):
            self.assertIn(word, text)

    def test_too_little_for_a_connection_is_refused(self):
        for limit in (0, 16):
            found = json.loads(limited(limit, INFO, "--json").stdout)
            self.assertEqual(found["memory"]["locked_memory_limit"]["size_bytes"], limit << 10)
            verbs = found["transports"]["verbs"]
            self.assertFalse(verbs["works"])
            self.assertRegex(verbs["reason"], rf"cannot register the memory of one connection.* {limit << 10} in all")
            self.expect_remedy(verbs["reason"])
            # UCX itself would not return.
            if ucx := found["transports"].get("ucx"):
                self.expect_remedy(ucx["reason"])

    def test_little_is_warned_of_once(self):
        done = limited(64, INFO, "--json")
        self.assertTrue(json.loads(done.stdout)["transports"]["verbs"]["works"])
        self.assertEqual(done.stderr.count("a process may lock only 64 KiB"), 1)
        self.expect_remedy(done.stderr)

    def test_ucx_works_when_it_is_told_to_leave_the_devices_alone(self):
        transports = json.loads(limited(64, INFO, "--json", UCX_TLS="tcp,self").stdout)["transports"]
        if "ucx" not in transports:
            self.skipTest("ucx is not in this build")
        self.assertTrue(transports["ucx"]["works"], transports["ucx"])

    def test_a_job_says_what_its_memory_lacks(self):
        done = limited(64, RUN, "-n", "4", SVM, "--generate", "--rows", "200", "--features", "50000",
                       DUNLIN_TRANSPORTS="verbs")
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr + done.stdout, r"ibv_reg_mr \(\d+ bytes, and 65536 in all may be locked")

    def test_who_may_exceed_the_limit_is_not_bothered(self):
        done = subprocess.run(["bash", "-c", f"ulimit -l 16; exec {INFO} --json"], text=True, capture_output=True,
                              check=True, timeout=60)
        found = json.loads(done.stdout)
        self.assertTrue(found["transports"]["verbs"]["works"])
        self.assertTrue(found["memory"]["locked_memory_limit"]["is_unlimited"])
        self.assertNotIn("may lock", done.stderr)


class ZLast(unittest.TestCase):  # rdma_rxe may not survive it
    def test_ports_that_are_down(self):
        shell("ip link set v0 down")
        rdma = report()["rdma"]
        self.assertEqual(rdma["addresses"], [])
        self.assertIn("no active port", rdma["reason"])
        for number, port in enumerate(ports(rdma).values()):
            self.assertEqual(port["state"], "down")
            self.assertIn("not active", port["reason"])
            self.assertIn(f"ip link set v{number} up", port["remedy"])


if __name__ == "__main__":
    INFO, RUN, SVM = (os.path.abspath(program) for program in sys.argv[1:4])
    del sys.argv[1:4]
    unittest.main(verbosity=2)
