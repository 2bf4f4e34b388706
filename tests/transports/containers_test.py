#!/usr/bin/env python3
"""Ranks of one job that run in containers of one host: they share memory where they can, and say why not elsewhere.

    containers_test.py DUNLIN_RUN CONTAINER_RANK

A container is a PID namespace with its own /proc, and sometimes a network namespace. These need root.
"""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from job import LOADED, Job, children_of, reports  # noqa: E402
from two_hosts import ADDRESSES, TwoHostsTest  # noqa: E402

RUN = ""
RANK = ""
CONTAINER = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def makes_namespaces(*options):
    try:
        return subprocess.run(["unshare", *options, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def abstract_sockets():
    """Returns {inode: name} of the sockets of all jobs in this network namespace."""
    with open("/proc/net/unix", encoding="ascii") as file:
        return {f"socket:[{inode}]": name for inode, name in re.findall(r" (\d+) @(dunlin-shm-\S+)", file.read())}


def socket_of(pid):
    """The name of the socket at which the process passes descriptors."""
    known = abstract_sockets()
    for number in os.listdir(f"/proc/{pid}/fd"):
        if name := known.get(os.readlink(f"/proc/{pid}/fd/{number}")):
            return name
    raise AssertionError(f"process {pid} has no socket in {known}")


class ContainersTest(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0 or not makes_namespaces("--pid", "--fork", "--mount-proc"):
            self.skipTest("PID namespaces need root and unshare")
        # Under shm alone, nothing else could hide that memory is not shared.
        self.env = {"DUNLIN_TRANSPORTS": "shm,tcp", "DUNLIN_HEARTBEAT": "1s"}

    def start(self, ranks, container=(), arguments=(), **settings):
        # All have time to report by themselves: dunlin-run would end them 2 s after the first one, by default.
        job = Job([RUN, "-n", ranks, "--grace", 60, *CONTAINER, *container, RANK, *arguments], env={**self.env, **settings})
        self.addCleanup(job.kill)
        return job

    def run_ranks(self, ranks, container=(), **settings):
        job = self.start(ranks, container, **settings)
        self.assertEqual(job.wait(), 0, job.text())
        self.assertEqual(len(reports(job, "all of it works")), ranks, job.text())
        return job.text()

    def assert_all_over(self, transport, text, ranks):
        self.assertEqual(len(re.findall(rf"to rank \d+: {transport}\b", text)), ranks * (ranks - 1), text)

    def test_ranks_share_memory_through_their_network_namespace(self):
        for ranks in (2, 4):
            text = self.run_ranks(ranks)
            self.assert_all_over("shm", text, ranks)
            self.assertNotIn("warning", text)
            # They really are in different PID namespaces, where each is the first process.
            self.assertEqual(text.count("process 1: all of it works"), ranks, text)

    def test_user_namespaces_may_differ_too(self):
        if not makes_namespaces("--user", "--map-root-user"):
            self.skipTest("no user namespaces here")
        self.assert_all_over("shm", self.run_ranks(2, ["--user", "--map-root-user"]), 2)

    def test_a_stranger_gets_no_descriptor_and_disturbs_nobody(self):
        job = self.start(2, arguments=["wait"])
        self.await_lines(job, r"waits", 2)
        containers = [children_of(job.rank_pid(rank))[0] for rank in (0, 1)]
        names = [socket_of(pid) for pid in containers]
        for name in names:
            strangers = []
            for text in (b"", b"x", b"DUNLNHD\x01" + bytes(8), bytes(72), bytes(4096)):
                stranger = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                strangers.append(stranger)
                stranger.connect("\0" + name)
                stranger.settimeout(LOADED * 60)
                stranger.recv(1000)  # the challenge
                if not text:
                    continue
                stranger.send(text)
                try:
                    answer, descriptors, _, _ = socket.recv_fds(stranger, 1000, 10)
                except ConnectionResetError:
                    answer, descriptors = b"", []
                self.assertEqual((answer, descriptors), (b"", []))
            for stranger in strangers:
                stranger.close()
        os.kill(containers[1], signal.SIGKILL)
        self.assertNotEqual(job.wait(), 0)
        self.assertIn("rank 1, which is dead", job.text())
        self.assertFalse(set(names) & set(abstract_sockets().values()))

    def test_a_folder_in_which_no_socket_can_be_made_is_named(self):
        text = self.run_ranks(2, DUNLIN_SHM_DIR="/no/such/folder")
        self.assert_all_over("tcp", text, 2)
        self.assertIn("DUNLIN_SHM_DIR=/no/such/folder", text)

    def test_a_killed_rank_is_named(self):
        job = self.start(4, arguments=["wait"])
        self.await_lines(job, r"waits", 4)
        container = job.rank_pid(1)
        os.kill(children_of(container)[0], signal.SIGKILL)
        self.assertNotEqual(job.wait(), 0)
        for rank in (0, 2, 3):
            found = [line for _, line in job.lines if line.startswith(f"[{rank}] ") and "from rank 1" in line
                     and "is dead" in line]
            self.assertTrue(found, job.text())

    def test_nothing_is_left_in_the_folder_but_the_sockets_of_the_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            job = self.start(2, arguments=["wait"], DUNLIN_SHM_DIR=folder)
            self.await_lines(job, r"waits", 2)
            for name in os.listdir(folder):
                mode = os.stat(os.path.join(folder, name)).st_mode
                self.assertTrue(stat.S_ISSOCK(mode))
                self.assertEqual(stat.S_IMODE(mode), 0o600)
            self.assertEqual(len(os.listdir(folder)), 2)
            job.kill()
            # The next job clears up.
            self.run_ranks(2, DUNLIN_SHM_DIR=folder)
            self.assertEqual(os.listdir(folder), [])

    def await_lines(self, job, pattern, count):
        for _ in range(LOADED * 60 * 50):
            if len(reports(job, pattern)) >= count:
                return
            if job.process.poll() is not None:
                break
            job._pause()
        self.fail(job.text())


class ApartTest(TwoHostsTest):
    """The ranks have a network namespace each."""

    def run_ranks(self, **settings):
        settings = {"DUNLIN_TRANSPORTS": "shm,tcp", "DUNLIN_JOB_SECRET": "a secret of this test", **settings}
        jobs = []
        for rank in (0, 1):
            jobs.append(Job(self.on_host(rank, [RUN, "-n", 1, "--size", 2, "--first-rank", rank, "--coordinator",
                                                f"{ADDRESSES[0]}:29471", *CONTAINER, RANK]), env=settings))
            self.addCleanup(jobs[-1].kill)
        codes = [job.wait() for job in jobs]
        text = "\n".join(job.text() for job in jobs)
        self.assertEqual(codes, [0, 0], text)
        self.assertEqual(text.count("all of it works"), 2, text)
        return text

    def test_without_anything_in_common_they_use_tcp_and_say_why(self):
        text = self.run_ranks()
        self.assertEqual(len(re.findall(r"to rank \d: tcp", text)), 2, text)
        self.assertIn("share no network namespace", text)
        self.assertIn("set DUNLIN_SHM_DIR", text)
        self.assertRegex(text, r"warning: ranks \d and \d do not share memory")

    def test_a_shared_folder_is_enough(self):
        with tempfile.TemporaryDirectory() as folder:
            text = self.run_ranks(DUNLIN_SHM_DIR=folder)
            self.assertEqual(len(re.findall(r"to rank \d: shm", text)), 2, text)
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    RUN, RANK = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
