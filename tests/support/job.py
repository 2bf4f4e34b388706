"""Jobs for tests of whole programs: start them, read their output line by line, send signals to single ranks."""

import ctypes
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest


# A loaded host takes so many times as long as the timeouts below allow.
LOADED = 5

# tools/check --all sets it: then all cases are tested, and not only those that stand for the others.
THOROUGH = os.environ.get("TEST_THOROUGH", "0") not in ("0", "")
thorough = unittest.skipUnless(THOROUGH, "TEST_THOROUGH is not set (tools/check --all sets it)")


def some(cases, count):
    """The first cases, or all of them in a thorough test."""
    return cases if THOROUGH else cases[:count]


# For Debian's PyTorch with Python 3.11, which accepts only 1 and 2 as values of --redirects and --tee.
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--redirects", "1", "--tee", "1"]

# Few images with little noise: dunlin-cnn learns them in a second, far better than by guessing (10 %), in batches of 4.
CNN_IMAGES = ["--generate", "--images", 300, "--test-images", 100, "--noise", 24]


class Job:
    """A running command. It stores the lines of both output streams with their times of arrival."""

    def __init__(self, command, env=None, unset=()):
        # On a loaded host, programs with LibTorch have taken longer than the default of 30 s to join.
        inherited = {k: v for k, v in os.environ.items() if k not in unset}
        environment = {"DUNLIN_BOOTSTRAP_TIMEOUT": "120s", **inherited, **(env or {})}
        self.process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, errors="replace", env=environment,
                                        start_new_session=True)
        self.lines = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._changed:
                self.lines.append((time.monotonic(), line.rstrip("\n")))
                self._changed.notify_all()

    def text(self):
        return "\n".join(line for _, line in list(self.lines))

    def wait(self, timeout=120):
        """Returns the exit code. After the timeout, kills all processes and raises AssertionError."""
        try:
            code = self.process.wait(LOADED * timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise AssertionError(f"still running after {LOADED * timeout} s:\n{self.text()}") from None
        self._reader.join(10)
        self.process.stdout.close()
        return code

    def kill(self):
        """Kills a running command, and returns when its children, which end with it, have ended."""
        if self.process.poll() is not None:
            return
        children = []
        for pid in children_of(self.process.pid):
            try:
                children.append(os.pidfd_open(pid))
            except ProcessLookupError:
                pass
        os.killpg(self.process.pid, signal.SIGKILL)
        self.wait()
        for child in children:
            ended, _, _ = select.select([child], [], [], LOADED * 30)
            os.close(child)
            if not ended:
                raise AssertionError("a child process still runs after its parent was killed")

    def rank_pid(self, rank, timeout=30):
        """Returns the process id of a rank of dunlin-run: the child whose environment has its DUNLIN_RANK."""
        wanted = f"DUNLIN_RANK={rank}".encode()
        deadline = time.monotonic() + LOADED * timeout
        while time.monotonic() < deadline:
            for pid in children_of(self.process.pid):
                try:
                    with open(f"/proc/{pid}/environ", "rb") as file:
                        if wanted in file.read().split(b"\0"):
                            return pid
                except OSError:
                    pass
            self._pause()
        raise AssertionError(f"no process of rank {rank}:\n{self.text()}")

    def _pause(self):
        with self._changed:
            self._changed.wait(0.02)


def end_with_parent():
    """In a child process: it is killed when the process that has forked it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def events(path, kind):
    """Returns the JSON lines of one kind. A line that is not complete yet is left out."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()  # at once: a loop over lines would go on in the middle of one that grows meanwhile
    except FileNotFoundError:
        return []
    complete = text[:text.rfind("\n") + 1].splitlines()
    return [event for event in map(json.loads, complete) if event["event"] == kind]


def await_progress(job, path, count=3, timeout=60):
    """Waits until a training run has reported its progress `count` times."""
    deadline = time.monotonic() + LOADED * timeout
    while time.monotonic() < deadline:
        if len(events(path, "progress")) >= count:
            return
        if job.process.poll() is not None:
            break
        job._pause()
    raise AssertionError(f"no progress in {path}:\n{job.text()}")


def lines_by_rank(job, ranks, without):
    """{rank: its lines} by the tags of dunlin-run. Lines that begin with the pattern `without` are left out."""
    lines = {rank: [] for rank in range(ranks)}
    for _, line in job.lines:
        if tagged := re.match(rf"\[(\d+)\] (?!{without})(.*)", line):
            lines[int(tagged.group(1))].append(tagged.group(2))
    return lines


def reports(job, pattern):
    """Returns {rank: (time, line)} of the first matching line of each rank, by the tags of dunlin-run."""
    found = {}
    for moment, line in list(job.lines):
        tag = re.match(r"\[(\d+)\] ", line)
        if tag and re.search(pattern, line):
            found.setdefault(int(tag.group(1)), (moment, line))
    return found


class JobTest(unittest.TestCase):
    """Tests of a program that writes JSON lines. Each test has a temporary folder."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def await_condition(self, job, condition, timeout=120):
        """Waits until the condition holds, while the job runs."""
        deadline = time.monotonic() + LOADED * timeout
        while not condition():
            self.assertIsNone(job.process.poll(), job.text())
            self.assertLess(time.monotonic(), deadline, job.text())
            job._pause()

    def check_difference(self, program, common, first, second, told):
        """A job whose rank 0 has the options `first`, and its rank 1 `second`, ends soon, and both tell the difference.

        program: dunlin-run, and what its ranks run.
        """
        run, *ranks = program
        commands = [shlex.join(map(str, [*ranks, *common, *own])) for own in (first, second)]
        script = f"case $DUNLIN_RANK in 0) exec {commands[0]};; *) exec {commands[1]};; esac"
        job = Job([run, "-n", 2, "--keep-going", "sh", "-c", script])
        self.assertEqual(job.wait(timeout=25), 2, job.text())
        for rank in (0, 1):
            self.assertRegex(job.text(), rf"\[{rank}\] .*different options or data: {re.escape(told)}")

    def final(self, command, env=None, unset=(), expect=0, json="run.jsonl"):
        """Runs the command to its end and returns its last JSON line of the kind "final"."""
        job = Job([*command, "--json-out", self.path(json)], env=env, unset=unset)
        self.assertEqual(job.wait(), expect, job.text())
        return events(self.path(json), "final")[-1]


class ElasticTest(JobTest):
    """Tests of a training program in a job that processes join and leave. Subclasses set these:"""

    run_command = None  # dunlin-run
    program = None  # the command, with the options of all tests
    plot = None  # dunlin-plot and its command for the program's JSON lines

    def setUp(self):
        super().setUp()
        self.json = self.path("run.jsonl")
        self.job_file = self.path("job")

    def clear(self):
        """Removes the files of a job that is over, before another one in the same test."""
        for path in (self.json, self.job_file):
            if os.path.exists(path):
                os.unlink(path)

    def start(self, founders, most, *options):
        job = Job([self.run_command, "-n", founders, "--max-ranks", most, "--job-file", self.job_file, "--keep-going",
                   *self.program, "--json-out", self.json, *options])
        self.addCleanup(job.kill)
        await_progress(job, self.json)
        return job

    def join(self, ranks, *options):
        newcomers = Job([self.run_command, "--join", self.job_file, "-n", ranks, "--keep-going", *self.program, *options])
        self.addCleanup(newcomers.kill)
        return newcomers

    def members(self):
        return events(self.json, "members")

    def await_workers(self, job, count):
        """Waits until the job trains with so many workers, and has gone on since."""
        self.await_condition(job, lambda: self.members() and self.members()[-1]["workers"] == count)
        await_progress(job, self.json, len(events(self.json, "progress")) + 3)

    def seen(self, kind):
        """The ranks that have joined, left or died."""
        return [rank for event in self.members() for rank in event[kind]]

    def check_figure(self, marks):
        """The changes are marked where dunlin-plot can draw."""
        picture = self.path("run.svg")
        done = subprocess.run(["/usr/bin/python3", *self.plot, "--x", "time", "--out", picture, self.json],
                              capture_output=True, text=True)
        if "need matplotlib" in done.stderr:
            return
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(picture, encoding="utf-8") as file:
            drawn = file.read()
        for mark in marks:
            self.assertIn(mark, drawn)
