"""Two hosts train together: two network namespaces joined by a veth pair, UCX over TCP between them."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import Job, events  # noqa: E402

RUN, SVM = sys.argv[1:3]
del sys.argv[1:3]

DATA = ["--generate", "--rows", 6000, "--features", 8000, "--nonzeros", 40, "--epochs", 5, "--quiet", "--deferred-eval"]
NAMES = [f"dunlin-{os.getpid()}-{side}" for side in "ab"]
ADDRESSES = ["10.211.7.1", "10.211.7.2"]


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class TwoHosts(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0 or not shutil.which("ip"):
            self.skipTest("network namespaces need root and iproute2")
        self.addCleanup(self.remove_hosts)
        try:
            for name in NAMES:
                ip("netns", "add", name)
            ip("link", "add", "dunlin0", "netns", NAMES[0], "type", "veth", "peer", "name", "dunlin0", "netns", NAMES[1])
            for name, address in zip(NAMES, ADDRESSES):
                ip("-n", name, "address", "add", f"{address}/24", "dev", "dunlin0")
                ip("-n", name, "link", "set", "dunlin0", "up")
                ip("-n", name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            self.skipTest(f"no network namespaces here: {error.stderr.strip()}")
        for name in NAMES:
            self.await_link(name)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def await_link(self, name):
        """UCX leaves out interfaces that are not up yet when it starts."""
        for _ in range(200):
            shown = subprocess.run(["ip", "-n", name, "-brief", "link", "show", "dunlin0"], capture_output=True, text=True)
            if shown.stdout.split()[1:2] == ["UP"]:
                return
            time.sleep(0.05)
        self.fail(f"the link in {name} does not come up: {shown.stdout}")

    @staticmethod
    def remove_hosts():
        for name in NAMES:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)

    def start(self, host, json, transports):
        # One boot id for both: what tells the hosts apart is their id.
        env = {"DUNLIN_HOST_ID": f"host-{host}", "DUNLIN_JOB_SECRET": "a secret of this test",
               "DUNLIN_TRANSPORTS": transports}
        return Job(["ip", "netns", "exec", NAMES[host], RUN, "-n", 2, "--size", 4, "--first-rank", 2 * host,
                    "--coordinator", f"{ADDRESSES[0]}:4711", SVM, *DATA, "--json-out", json], env=env)

    def test_the_result_is_that_of_one_host(self):
        local = os.path.join(self.folder.name, "local.jsonl")
        self.assertEqual(Job([RUN, "-n", 4, SVM, *DATA, "--json-out", local]).wait(), 0)
        for transports, used in (("shm,ucx", "shm+ucx"), ("ucx", "ucx")):
            with self.subTest(transports):
                json = os.path.join(self.folder.name, f"{used}.jsonl")
                jobs = [self.start(host, json, transports) for host in (0, 1)]
                for job in jobs:
                    self.assertEqual(job.wait(), 0, job.text())
                self.assertEqual(events(json, "config")[0]["transports"], used)
                # NOTIFY-ACK's data flow doesn't depend on time: to the last bit.
                self.assertEqual(events(json, "final")[0]["objective"], events(local, "final")[0]["objective"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
