#!/usr/bin/env python3
"""dunlin-top, dunlin-run --report and the metrics, on jobs with a rank that is slow, stuck, stopped or killed.

    top_test.py DUNLIN_RUN DUNLIN_TOP STRAGGLER_RANK
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import LOADED, Job, JobTest  # noqa: E402

RUN, TOP, RANK = sys.argv[1:4]
del sys.argv[1:4]


class Top(JobTest):
    def setUp(self):
        super().setUp()
        self.env = {"DUNLIN_FLIGHT": self.path("flight")}

    def start(self, *arguments, options=(), env=None):
        """Starts a job of four, which lasts until it is killed if it is to make 0 steps."""
        job = Job([RUN, "-n", 4, *options, RANK, *arguments], env={**self.env, **(env or {})})
        self.addCleanup(job.kill)
        return job

    def await_step(self, job, step):
        """Waits until all ranks have made that many steps."""
        deadline = time.monotonic() + LOADED * 60
        while time.monotonic() < deadline and job.process.poll() is None:
            if all(f"[{rank}] at {step}" in job.text() for rank in range(4)):
                return
            job._pause()
        self.fail(f"the job has not made {step} steps:\n{job.text()}")

    def top(self, *options, expect=0):
        done = subprocess.run([TOP, *options], env={**os.environ, **self.env}, capture_output=True, text=True,
                              timeout=LOADED * 60, check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout if expect == 0 else done.stderr

    def views(self, *options):
        """The views of a live dunlin-top, as they come."""
        with subprocess.Popen([TOP, "--json", *options], env={**os.environ, **self.env}, stdout=subprocess.PIPE,
                              text=True) as process:
            try:
                for line in process.stdout:
                    yield json.loads(line)
            finally:
                process.terminate()

    def await_view(self, is_wanted, *options):
        """The first view that is wanted."""
        deadline = time.monotonic() + LOADED * 60
        last = None
        views = self.views(*options)
        for last in views:
            if is_wanted(last) or time.monotonic() > deadline:
                break
        views.close()
        self.assertIsNotNone(last)
        self.assertTrue(is_wanted(last), last)
        return last

    def test_names_a_rank_that_is_three_times_as_slow_within_two_seconds(self):
        job = self.start(0, 2, 3)
        self.await_step(job, 20)
        # Four views are two seconds.
        for number, view in enumerate(self.views(), 1):
            if view["stragglers"] or number == 4:
                break
        self.assertEqual([each["rank"] for each in view["stragglers"]], [2], view)
        found = view["stragglers"][0]
        self.assertEqual(found["trouble"], "slow")
        self.assertEqual(sorted(found["waiters"]), [0, 1, 3])
        self.assertGreater(found["lost_share"], 0.3)
        self.assertGreater(found["own_step_s"], 2 * found["median_step_s"])
        self.assertIn("rank 2 is slow", found["text"])

    def test_a_view_has_all_ranks_and_what_they_do(self):
        job = self.start(0, 2, 3)
        self.await_step(job, 10)
        view = json.loads(self.top("--once", "--json", "--interval", "1s"))
        self.assertEqual(view["size"], 4)
        self.assertEqual([each["rank"] for each in view["ranks"]], [0, 1, 2, 3])
        for each in view["ranks"]:
            self.assertGreaterEqual(each["step"], 10)
            self.assertGreater(each["operations"] + each["steps"], 0)
            self.assertIn(each["state"], ["computes", "waits"])
            self.assertEqual(each["pid"], job.rank_pid(each["rank"]))
        text = self.top("--once")
        self.assertRegex(text, r"^job \S+: straggler_rank on \S+, 4 of 4 ranks here")
        self.assertRegex(text, r"(?m)^rank 2 is slow: ranks [013], [013] and [013] wait for it \d+ % of their time")
        self.assertRegex(text, r"(?m)^ *rank +state +step +steps/s")
        self.assertRegex(text, r"(?m)^ *3 +(waits|computes) +\d+")
        self.assertRegex(self.top("--list"), r"^\S+  4 ranks\n$")
        name = view["job"]
        self.assertIn(f"job {name}:", self.top("--once", "--job", name[:8]))
        self.assertIn("no job 'other'", self.top("--once", "--job", "other", expect=1))

    def test_tells_a_stuck_rank_from_a_stopped_one(self):
        job = self.start(0, 1, 1, "stick", 15, env={"DUNLIN_DEADLINE": "10min"})
        self.await_step(job, 10)
        view = self.await_view(lambda view: any(each["trouble"] == "stuck" for each in view["stragglers"]),
                               "--stuck-after", "1s")
        self.assertEqual([each["rank"] for each in view["stragglers"]], [1], view)
        os.kill(job.rank_pid(1), signal.SIGSTOP)
        view = self.await_view(lambda view: any(each["trouble"] == "stopped" for each in view["stragglers"]))
        self.assertEqual([each["rank"] for each in view["stragglers"]], [1], view)
        self.assertEqual(view["ranks"][1]["state"], "stopped")

    def test_the_records_of_a_job_that_ends_well_are_removed(self):
        job = self.start(10, 0, 1)
        self.assertEqual(job.wait(), 0, job.text())
        self.assertEqual(os.listdir(self.path("flight")), [])
        self.assertIn("no job that runs", self.top("--once", expect=1))

    def test_a_killed_rank_can_be_read_afterwards(self):
        job = self.start(0, 0, 1)
        self.await_step(job, 10)
        victim = job.rank_pid(2)
        os.kill(victim, signal.SIGKILL)
        self.assertNotEqual(job.wait(), 0)
        folder = os.path.join(self.path("flight"), *os.listdir(self.path("flight")))
        self.assertEqual(sorted(os.listdir(folder)), [f"rank-{rank}" for rank in range(4)])
        text = self.top("--post-mortem")
        self.assertRegex(text, rf"(?m)^rank 2 is dead: its process {victim} has ended")
        self.assertRegex(text, r"(?m)^rank \d met an error: peer_dead: .*rank 2")
        self.assertRegex(text, r"(?m)^rank 2:\n(  .* before the end: .*\n){1,10}(?!  .* before)")
        self.assertIn("all-reduce", text)
        # The folder may be a copy.
        self.assertEqual(self.top("--post-mortem", "--dir", folder), text)
        view = json.loads(self.top("--post-mortem", "--json"))
        self.assertEqual([each["rank"] for each in view["stragglers"] if each["trouble"] == "dead"], [2])

    def test_a_live_view_ends_with_its_job(self):
        job = self.start(60, 3, 3)
        self.await_step(job, 10)
        views = list(self.views())
        self.assertEqual(job.wait(), 0, job.text())
        self.assertGreater(len(views), 1)
        self.assertEqual({each["state"] for each in views[-1]["ranks"]}, {"has left"})

    def test_the_report_at_the_end_names_the_slow_rank(self):
        job = self.start(60, 3, 3, options=["--report"])
        self.assertEqual(job.wait(), 0, job.text())
        found = re.search(r"(?m)^rank 3 was waited for (\d+) % of the time, by ranks [012], [012] and [012]; its steps "
                          r"take (\d\.\d) times the median", job.text())
        self.assertIsNotNone(found, job.text())
        self.assertGreater(int(found.group(1)), 20)
        self.assertEqual(os.listdir(self.path("flight")), [])

    def test_the_report_needs_records(self):
        job = Job([RUN, "-n", 2, "--report", "true"], env={"DUNLIN_FLIGHT": "off"})
        self.assertEqual(job.wait(), 127)
        self.assertIn("--report needs the ranks' flight records", job.text())

    def test_a_deadline_is_reported_with_the_rank_that_is_stuck(self):
        job = self.start(0, 1, 1, "stick", 5, env={"DUNLIN_DEADLINE": "3s"})
        self.assertNotEqual(job.wait(), 0)
        self.assertIn("the ranks of this host when the deadline passed", job.text())
        self.assertRegex(job.text(), r"(?m)^\[[023]\] rank 1 (is stuck|was waited for)")

    def test_nothing_is_recorded_where_it_is_switched_off(self):
        job = self.start(10, 0, 1, env={"DUNLIN_FLIGHT": "off"})
        self.assertEqual(job.wait(), 0, job.text())
        self.assertFalse(os.path.exists(self.path("flight")))

    def scrape(self, path):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(LOADED * 20)
            client.connect(path)
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while part := client.recv(65536):
                answer += part
        head, _, body = answer.decode().partition("\r\n\r\n")
        self.assertTrue(head.startswith("HTTP/1.0 200 OK"), head)
        return body

    def samples(self, text, name):
        """{rank: value} of a metric with no further labels."""
        found = re.findall(rf'(?m)^{name}{{dunlin_job="[^"]*",rank="(\d+)"}} (\S+)$', text)
        return {int(rank): float(value) for rank, value in found}

    def test_prometheus_reads_the_metrics_of_a_rank_and_of_a_host(self):
        job = self.start(0, 2, 3, env={"DUNLIN_METRICS": "unix:" + self.path("%r.sock")})
        self.await_step(job, 10)
        for rank in range(4):
            text = self.scrape(self.path(f"{rank}.sock"))
            self.assertEqual(self.samples(text, "dunlin_rank_up"), {rank: 1})
            self.assertGreaterEqual(self.samples(text, "dunlin_steps_total")[rank], 9)
        exporter = subprocess.Popen([TOP, "--metrics", "unix:" + self.path("host.sock")],
                                    env={**os.environ, **self.env})
        try:
            deadline = time.monotonic() + LOADED * 20
            while not os.path.exists(self.path("host.sock")) and time.monotonic() < deadline:
                time.sleep(0.02)
            text = self.scrape(self.path("host.sock"))
        finally:
            exporter.terminate()
            self.assertEqual(exporter.wait(LOADED * 20), 0)
        waited = self.samples(text, "dunlin_wait_seconds_total")
        self.assertEqual(sorted(waited), [0, 1, 2, 3])
        self.assertEqual(min(waited, key=waited.get), 2, waited)

    def test_a_folder_of_records_that_cannot_be_used_is_named(self):
        with open(self.path("is-a-file"), "wb"):
            pass
        job = self.start(0, 2, 3, env={"DUNLIN_FLIGHT": self.path("is-a-file")})
        self.await_step(job, 1)
        self.assertIn("no flight record (DUNLIN_FLIGHT)", job.text())
        self.assertIn("is-a-file", job.text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
