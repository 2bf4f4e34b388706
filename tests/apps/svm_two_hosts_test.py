"""Two hosts train together: two network namespaces joined by a veth pair, TCP between them."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import Job, events  # noqa: E402
from two_hosts import ADDRESSES, TwoHostsTest  # noqa: E402

RUN, SVM, HAS_UCX = sys.argv[1:4]
del sys.argv[1:4]

DATA = ["--generate", "--rows", 6000, "--features", 8000, "--nonzeros", 40, "--epochs", 5, "--quiet", "--deferred-eval"]
# Values of DUNLIN_TRANSPORTS (None: the default), and what is used then.
CASES = [(None, "shm+tcp"), ("tcp", "tcp")] + ([("shm,ucx", "shm+ucx"), ("ucx", "ucx")] if HAS_UCX == "yes" else [])


class TwoHosts(TwoHostsTest):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def start(self, host, json, transports):
        # One boot id for both: what tells the hosts apart is their id.
        env = {"DUNLIN_HOST_ID": f"host-{host}", "DUNLIN_JOB_SECRET": "a secret of this test"}
        if transports:
            env["DUNLIN_TRANSPORTS"] = transports
            # UCX takes any interface, also one that does not lead to the other host.
            env["UCX_NET_DEVICES"] = "dunlin0"
        return Job(self.on_host(host, [RUN, "-n", 2, "--size", 4, "--first-rank", 2 * host, "--coordinator",
                                       f"{ADDRESSES[0]}:4711", SVM, *DATA, "--json-out", json]), env=env)

    def test_the_result_is_that_of_one_host(self):
        local = os.path.join(self.folder.name, "local.jsonl")
        self.assertEqual(Job([RUN, "-n", 4, SVM, *DATA, "--json-out", local]).wait(), 0)
        for transports, used in CASES:
            with self.subTest(transports):
                json = os.path.join(self.folder.name, f"{transports}.jsonl")
                jobs = [self.start(host, json, transports) for host in (0, 1)]
                for job in jobs:
                    self.assertEqual(job.wait(), 0, "".join(each.text() for each in jobs))
                self.assertEqual(events(json, "config")[0]["transports"], used)
                # NOTIFY-ACK's data flow doesn't depend on time: to the last bit.
                self.assertEqual(events(json, "final")[0]["objective"], events(local, "final")[0]["objective"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
