#!/usr/bin/env python3
"""softroce: the guest's RDMA devices, its output and exit codes, and that nothing is left when it ends.

    softroce_test.py PROGRAM

Skipped (exit code 77) if the program itself says that it cannot work. Every boot takes seconds, so one run
answers as much as it can.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import Job, children_of  # noqa: E402

PROGRAM = ""
HERE = os.path.dirname(os.path.abspath(__file__))

# What is read of it stands in tests below. Ends by a signal, and leaves processes behind.
SCRIPT = """
for device in rxe0 rxe1; do
  ports=/sys/class/infiniband/$device/ports/1
  echo "$device $(cat $ports/gids/1) $(cat $ports/gid_attrs/types/1) $(cat $ports/state)"
done >devices
ulimit -l >locked
for folder in $UNWRITABLE; do
  cat "$folder/kept" && touch "$folder/file" 2>&1 && echo written
done >unwritable
if type ib_write_bw; then
  ib_write_bw -d rxe0 -x 1 -s 65536 -n 20 &
  until ib_write_bw -d rxe1 -x 1 -s 65536 -n 20 "$SOFTROCE_ADDRESS"; do sleep 0.5; done
  wait
  cat /sys/class/net/v1/statistics/tx_bytes >crossed
fi >perftest 2>&1
head -c 3000000 /dev/urandom | tee random
echo complaint >&2
sleep 1000 &
setsid sleep 1000 &
kill -SEGV $$
"""


def softroce(*arguments, **settings):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, check=False, env={**os.environ, **settings})


def await_end(pid, timeout=10):
    """Whether the process ended in time. A process without a parent that waits for it may stay as a zombie."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


class OneRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        # The sources, which may themselves lie in /tmp, and another folder that does.
        cls.unwritable = [tempfile.TemporaryDirectory(dir=folder) for folder in (HERE, "/tmp")]
        for folder in cls.unwritable:
            cls.addClassCleanup(folder.cleanup)
            (pathlib.Path(folder.name) / "kept").write_text("kept\n", encoding="ascii")
        names = [folder.name for folder in cls.unwritable]
        cls.done = softroce("--timeout", "120", "--writable", cls.folder.name,
                            *(word for name in names for word in ("--readable", name)), "--",
                            "bash", "-c", f"cd {cls.folder.name}\n{SCRIPT}", UNWRITABLE=" ".join(names))

    def read(self, name):
        return (pathlib.Path(self.folder.name) / name).read_text(encoding="utf-8")

    def test_two_devices_are_up_with_an_ipv4_address_at_index_1(self):
        self.assertEqual(self.read("devices").splitlines(), [
            "rxe0 0000:0000:0000:0000:0000:ffff:0a4d:0001 RoCE v2 4: ACTIVE",
            "rxe1 0000:0000:0000:0000:0000:ffff:0a4d:0002 RoCE v2 4: ACTIVE"], self.done.stderr)
        self.assertEqual(self.read("locked"), "unlimited\n")

    def test_traffic_crosses_the_pair(self):
        if not shutil.which("ib_write_bw"):
            self.skipTest("no ib_write_bw (package perftest)")
        self.assertGreater(int(self.read("crossed")), 20 * 65536, self.read("perftest"))

    def test_output_is_unharmed_and_errors_are_apart(self):
        self.assertEqual(len(self.done.stdout), 3_000_000)
        self.assertEqual(self.done.stdout, (pathlib.Path(self.folder.name) / "random").read_bytes())
        self.assertEqual(self.done.stderr, b"complaint\n")

    def test_exit_code_tells_the_signal(self):
        self.assertEqual(self.done.returncode, 128 + signal.SIGSEGV)

    def test_only_what_was_asked_for_is_writable(self):
        told = self.read("unwritable").splitlines()
        self.assertEqual(told[::2], ["kept"] * 2)
        self.assertEqual(len(told), 4)
        for line in told[1::2]:
            self.assertIn("Read-only file system", line)
        for folder in self.unwritable:
            self.assertEqual(os.listdir(folder.name), ["kept"])


class Ends(unittest.TestCase):
    def start(self, *options):
        """A run whose command sleeps, once it does; and the process id of its QEMU."""
        job = Job([PROGRAM, *options, "--", "sh", "-c", "echo up; sleep 1000"])
        self.addCleanup(job.kill)
        deadline = time.monotonic() + 120
        while not job.lines and job.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual([line for _, line in job.lines][:1], ["up"], job.text())
        children = children_of(job.process.pid)
        self.assertEqual(len(children), 1)
        return job, children[0]

    def test_time_limit(self):
        job, machine = self.start("--timeout", "5")
        self.assertEqual(job.wait(), 124)
        self.assertIn("time limit", job.text())
        self.assertTrue(await_end(machine))

    def test_a_killed_program_takes_its_guest_along(self):
        job, machine = self.start()
        job.process.kill()
        self.assertTrue(await_end(machine))
        self.assertEqual(job.wait(), -signal.SIGKILL)


class SecondDevices(unittest.TestCase):
    """--devices 2: a second network, whose cable is not the first one's."""
    SCRIPT = """
for device in /sys/class/infiniband/*; do
  echo "${device##*/} $(cat $device/ports/1/gids/1) $(cat $device/ports/1/state)"
done
"""
    ACTIVE = "0000:0000:0000:0000:0000:ffff:0a4d"

    def devices(self, *options):
        done = softroce("--devices", "2", *options, "--timeout", "120", "--", "bash", "-c", self.SCRIPT)
        self.assertEqual(done.returncode, 0, done.stderr)
        return sorted(done.stdout.decode().splitlines())

    def test_one_host_has_both_ends_of_both_cables(self):
        self.assertEqual(self.devices(), [
            f"rxe0 {self.ACTIVE}:0001 4: ACTIVE", f"rxe1 {self.ACTIVE}:0002 4: ACTIVE",
            f"rxe2 {self.ACTIVE}:0101 4: ACTIVE", f"rxe3 {self.ACTIVE}:0102 4: ACTIVE"])

    def test_two_hosts_have_two_each(self):
        self.assertEqual(self.devices("--hosts", "2"), [
            f"0: rxe0 {self.ACTIVE}:0001 4: ACTIVE", f"0: rxe1 {self.ACTIVE}:0101 4: ACTIVE",
            f"1: rxe0 {self.ACTIVE}:0002 4: ACTIVE", f"1: rxe1 {self.ACTIVE}:0102 4: ACTIVE"])


class NotStarted(unittest.TestCase):
    """What a host can't have is skipped. What fails although it could work is an error."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.symlink(shutil.which("qemu-system-x86_64"), os.path.join(self.folder, "qemu-system-x86_64"))

    def program(self, name, text):
        path = pathlib.Path(self.folder) / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="ascii")
        path.chmod(0o755)

    def run_with(self, path):
        with tempfile.TemporaryDirectory() as cache:
            return softroce("--cache", cache, "--", "true", PATH=path)

    def expect_skipped(self, path, reason):
        done = self.run_with(path)
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertRegex(done.stdout.decode(), rf"\Asoftroce: skipped: .*{reason}.*\n\Z")

    def test_without_qemu(self):
        self.expect_skipped("/nowhere", "no program qemu")

    def test_without_a_way_to_fetch_the_kernel(self):
        self.expect_skipped(self.folder, "no program apt-")

    def test_when_apt_fails(self):
        self.program("apt-cache", "echo '  Depends: linux-image-6.1.0-amd64'")
        self.program("apt-get", "echo 'E: no network' >&2; exit 100")
        done = self.run_with(self.folder)
        self.assertEqual((done.returncode, done.stdout), (125, b""))
        self.assertRegex(done.stderr.decode(), r"\Asoftroce: apt-get \w+ \S+: E: no network\n\Z")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    prepared = softroce("--prepare")
    if prepared.returncode != 0:
        sys.stdout.buffer.write(prepared.stdout + prepared.stderr)
        sys.exit(prepared.returncode)
    unittest.main(verbosity=2)
