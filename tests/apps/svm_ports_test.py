"""Which ports a job has open, and what strangers get there."""

import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import LOADED, Job, JobTest, await_progress, events  # noqa: E402
from sockets import listening  # noqa: E402
from two_hosts import ADDRESSES, TwoHostsTest  # noqa: E402

RUN, SVM = sys.argv[1:3]
del sys.argv[1:3]

ENDLESS = [SVM, "--generate", "--rows", 4000, "--features", 2000, "--nonzeros", 20, "--sync-every", 50, "--eval-every", 200,
           "--epochs", 1e6]

# Connects, sends its arguments' bytes, and prints how many bytes came back before the connection was closed.
STRANGER = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[4])) as it:
    count = 0
    try:
        it.sendall(bytes.fromhex(sys.argv[3]))
        while part := it.recv(1000):
            count += len(part)
    except ConnectionResetError:
        pass
    print(count)
"""
# Each is at least as long as a greeting. The second begins as a greeting does.
GARBAGE = [os.urandom(4096), b"DUNL-TCP\1" + os.urandom(300), b"GET / HTTP/1.1\r\n\r\n" + bytes(200)]


class OneHost(JobTest):
    def test_only_the_coordinator_listens(self):
        json = self.path("run.jsonl")
        job = Job([RUN, "-n", 4, *ENDLESS, "--json-out", json])
        self.addCleanup(job.kill)
        await_progress(job, json)
        for rank in range(4):
            self.assertEqual(listening(job.rank_pid(rank)), [], f"rank {rank}")
        coordinator = listening(job.process.pid)
        self.assertEqual(len(coordinator), 1, coordinator)
        self.assertTrue(coordinator[0][0].endswith("127.0.0.1"), coordinator)
        self.assertEqual(events(json, "config")[0]["transports"], "shm")

    def test_a_single_rank_listens_nowhere(self):
        for launcher in [RUN, "-n", 1], []:
            with self.subTest(launcher=launcher):
                json = self.path(f"run{len(launcher)}.jsonl")
                job = Job([*launcher, *ENDLESS, "--json-out", json])
                self.addCleanup(job.kill)
                await_progress(job, json)
                self.assertEqual(listening(job.rank_pid(0) if launcher else job.process.pid), [])
                job.kill()


class TwoHosts(JobTest, TwoHostsTest):
    def setUp(self):
        JobTest.setUp(self)
        TwoHostsTest.setUp(self)

    def test_ranks_listen_on_the_link_between_the_hosts_only_and_refuse_strangers(self):
        json = self.path("run.jsonl")
        jobs = []
        for host in (0, 1):
            env = {"DUNLIN_HOST_ID": f"host-{host}", "DUNLIN_JOB_SECRET": "a secret of this test"}
            jobs.append(Job(self.on_host(host, [RUN, "-n", 2, "--size", 4, "--first-rank", 2 * host, "--coordinator",
                                                f"{ADDRESSES[0]}:4711", *ENDLESS, "--json-out", json]), env=env))
            self.addCleanup(jobs[-1].kill)
        await_progress(jobs[0], json)
        for host, job in enumerate(jobs):
            for rank in (2 * host, 2 * host + 1):
                found = listening(job.rank_pid(rank))
                self.assertEqual([address for address, _ in found], [ADDRESSES[host]], f"rank {rank}: {found}")
                for garbage in GARBAGE:
                    answer = subprocess.run(self.on_host(1 - host, [sys.executable, "-c", STRANGER, ADDRESSES[host],
                                                                    str(found[0][1]), garbage.hex(), str(LOADED * 30)]),
                                            capture_output=True, text=True, check=True)
                    self.assertEqual(answer.stdout, "0\n", "a stranger was answered")
        before = len(events(json, "progress"))
        await_progress(jobs[0], json, before + 5)
        self.assertRegex("".join(job.text() for job in jobs), "tcp refused .* connection")


if __name__ == "__main__":
    unittest.main(verbosity=2)
