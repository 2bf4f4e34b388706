"""Jobs for notebooks: python3 -m dunlin.interactive, and the engines that it starts.

    interactive_test.py DUNLIN_RUN [TEST...]
"""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import LOADED, Job, JobTest  # noqa: E402

import ipyparallel  # noqa: E402
import psutil  # noqa: E402

import dunlin  # noqa: E402
import dunlin.interactive  # noqa: E402

os.environ["PATH"] = os.path.dirname(os.path.abspath(sys.argv.pop(1))) + ":" + os.environ["PATH"]
COMMAND = [sys.executable, "-m", "dunlin.interactive"]
# Seconds for what takes a few.
LONG = LOADED * 60


def run(*arguments):
    """The exit code and the output of a command that ends by itself."""
    done = subprocess.run([*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LONG)
    return done.returncode, done.stdout


def adopt_orphans():
    """Processes whose parent ends become children of this one (PR_SET_CHILD_SUBREAPER)."""
    ctypes.CDLL(None).prctl(36, 1)


class Interactive(JobTest):
    def setUp(self):
        super().setUp()
        os.environ["IPYTHONDIR"] = self.folder.name
        self.addCleanup(os.environ.pop, "IPYTHONDIR")

    def processes(self):
        """What runs of all that this test has started. See adopt_orphans()."""
        found = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def files(self):
        """The files in the profile, without those that make up any profile."""
        found = []
        for folder, _, names in os.walk(self.path("profile_dunlin")):
            found += [name for name in names if os.path.basename(folder) != "startup"]
        return found

    def start(self, ranks):
        job = Job([*COMMAND, "start", "-n", ranks])
        self.addCleanup(self.kill_all)
        self.addCleanup(job.kill)
        self.await_condition(job, lambda: "Stop the cluster" in job.text())
        return job

    def kill_all(self):
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def connect(self):
        view = dunlin.interactive.connect()
        self.addCleanup(view.client.close)
        return view

    def expect_nothing_is_left(self):
        deadline = time.monotonic() + LONG
        while left := self.processes():
            self.assertLess(time.monotonic(), deadline, left)
            time.sleep(0.05)
        self.assertEqual(self.files(), [])

    def expect_errors(self, result, pattern, ranks):
        """Each of these ranks, and no other one, has an error of this pattern."""
        with self.assertRaises(ipyparallel.CompositeError) as caught:
            result.get(LONG)
        text = str(caught.exception)
        self.assertEqual(sorted(int(rank) for rank in re.findall(rf"\[(\d+):\w+\]:? ?{pattern}", text)), ranks, text)
        return text

    def test_cells_of_a_job(self):
        job = self.start(3)
        self.assertEqual(os.stat(self.path("profile_dunlin")).st_mode & 0o077, 0)
        for process in self.processes():
            connections = getattr(process, "net_connections", None) or process.connections
            for connection in connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    self.assertEqual(connection.laddr.ip, "127.0.0.1", process.cmdline())

        ranks = self.connect()
        self.assertEqual(ranks.client.ids, [0, 1, 2])
        ranks.execute("import dunlin, numpy, os; dunlin.init()")
        ranks.execute("x = dunlin.all_reduce(numpy.full(4, float(dunlin.rank())), 'avg')")
        self.assertEqual(ranks.apply(lambda: (dunlin.rank(), float(x.max()))), [(k, 1) for k in range(3)])  # noqa: F821
        ranks.execute("dunlin.init(); x = dunlin.all_reduce((dunlin.rank() + 1) * x, 'avg')")
        self.assertEqual([x.tolist() for x in ranks["x"]], 3 * [4 * [2]])

        # A cell is interrupted, and the operation goes on.
        result = ranks.client[0].execute("dunlin.all_reduce(x)", block=False)
        ranks.client[0].execute("pass", block=False)  # waits its turn
        time.sleep(0.5)  # the result does not depend on whether the call waits yet
        ranks.client.send_signal(signal.SIGINT, targets=0, block=True)
        with self.assertRaisesRegex(ipyparallel.RemoteError, "KeyboardInterrupt"):
            result.get(LONG)
        ranks.client[1, 2].execute("dunlin.all_reduce(x)", block=True)
        self.assertEqual(ranks.apply(lambda: float(dunlin.all_reduce(numpy.ones(1))[0])), [3, 3, 3])  # noqa: F821

        code, output = run("start", "-n", 2)
        self.assertEqual(code, 1, output)
        self.assertRegex(output, "a cluster of 3 ranks runs in the profile 'dunlin' already .*dunlin.interactive stop")

        # An engine dies while the others wait for it.
        pids = ranks.apply(os.getpid)
        result = ranks.execute("if dunlin.rank() == 1: os.kill(os.getpid(), 9)\ny = dunlin.all_reduce(x)", block=False)
        text = self.expect_errors(result, "PeerDeadError: .*rank 1 is dead", [0, 2])
        self.assertIn("Engine 1 died", text)
        self.await_condition(job, lambda: "PeerDeadError" in job.text())
        self.assertIn(f"dunlin-run: rank 1 (process {pids[1]}) was killed by signal 9", job.text())
        # The others keep their variables, also for a notebook that connects only now.
        again = self.connect()
        self.assertEqual(again.client.ids, [0, 2])
        self.assertEqual([x.tolist() for x in again["x"]], 2 * [4 * [2]])
        result = again.execute("dunlin.all_reduce(x)", block=False)
        self.expect_errors(result, "PeerDeadError: .*rank 1 is dead", [0, 2])

        code, output = run("stop")
        self.assertEqual((code, output), (0, ""))
        self.assertEqual(job.wait(), 0, job.text())
        self.expect_nothing_is_left()

    def test_ctrl_c_ends_a_cluster_that_computes(self):
        job = self.start(2)
        ranks = self.connect()
        ranks.execute("import dunlin; dunlin.init()")
        ranks.execute("print('computes', flush=True)\nwhile True: pass", block=False)
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(), 0, job.text())
        self.assertRegex(job.text(), "Ending the cluster ...\nThe cluster has ended.$")
        self.expect_nothing_is_left()

    def test_a_killed_start_takes_its_cluster_along(self):
        job = self.start(2)
        job.process.kill()
        job.wait()
        deadline = time.monotonic() + LONG
        while self.processes():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        with self.assertRaisesRegex(dunlin.UnavailableError, "no cluster runs in the profile 'dunlin': start one by"):
            dunlin.interactive.connect()
        code, output = run("stop")
        self.assertEqual(code, 1)
        self.assertIn("no cluster runs in the profile 'dunlin'", output)
        self.assertEqual(self.files(), [])

    def test_an_engine_that_does_not_start(self):
        startup = self.path("profile_dunlin/startup")
        os.makedirs(startup)
        with open(os.path.join(startup, "fail.py"), "w", encoding="utf-8") as file:
            file.write("import os\nif os.environ['DUNLIN_RANK'] == '1': os._exit(4)\n")
        code, output = run("start", "-n", 2)
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"an engine has ended:(\n.*)*rank 1 \(process \d+\) exited with code 4")
        self.expect_nothing_is_left()

    def test_wrong_commands(self):
        for arguments, expected in ((["start"], "required: -n"),
                                    (["start", "-n", 0], "'0' is not a whole number from 1 to 4096"),
                                    (["start", "-n", "two"], "'two' is not a whole number"), ([], "COMMAND"),
                                    (["start", "-n", 2, "two"], "arguments: two")):
            code, output = run(*arguments)
            self.assertEqual(code, 2, output)
            self.assertIn(expected, output)
        code, output = run("start", "-n", 2, "--profile", "../x")
        self.assertEqual(code, 1)
        self.assertIn("'../x' is no name of a profile", output)
        code, output = run("start", "-n", 2, "--", "--no-such-option")
        self.assertEqual(code, 1)
        self.assertIn("--no-such-option: is not an option of dunlin-run", output)
        code, output = run("engine")
        self.assertEqual(code, 2)
        self.assertIn("needs a rank", output)
        self.expect_nothing_is_left()

    def test_a_cluster_that_a_notebook_starts(self):
        cluster = ipyparallel.Cluster(n=2, engine_launcher_class="dunlin.interactive.EngineLauncher", log_level=40)
        client = cluster.start_and_connect_sync()
        self.addCleanup(self.kill_all)
        try:
            self.assertEqual(client[:].apply_sync(lambda: __import__("os").environ["DUNLIN_RANK"]), ["0", "1"])
        finally:
            client.close()
            cluster.stop_cluster_sync()
        self.expect_nothing_is_left()


if __name__ == "__main__":
    adopt_orphans()
    unittest.main(verbosity=2)
