"""dunlin-svm when workers die or stop in the middle of a run."""

import os
import re
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import Job, JobTest, await_progress, events, reports  # noqa: E402

RUN, SVM, PROBE, TRANSPORT = sys.argv[1:5]
del sys.argv[1:5]

WORKERS = 8
SMALL_STEPS = ["--generate", "--rows", 4000, "--features", 2000, "--nonzeros", 20, "--sync-every", 50, "--eval-every", 200,
               "--quiet", "--transport", TRANSPORT]
# Far more of them than any test waits for.
ENDLESS = [*SMALL_STEPS, "--epochs", 1e6]


class Failure(JobTest):
    def setUp(self):
        super().setUp()
        self.json = self.path("run.jsonl")

    def start(self, *options, run=(), env=None):
        job = Job([RUN, "-n", WORKERS, *run, SVM, *ENDLESS, "--json-out", self.json, *options], env=env)
        self.addCleanup(job.kill)
        await_progress(job, self.json)
        return job

    def test_every_worker_reports_a_killed_one(self):
        for graph in ("complete", "root-expander"):
            with self.subTest(graph):
                if os.path.exists(self.json):
                    os.unlink(self.json)
                # A dead process is an event that takes milliseconds. Neither a heartbeat nor a deadline tells of it within
                # the limit, which a loaded host doesn't reach. dunlin-run gives all workers time to report.
                job = self.start("--graph", graph, "--deadline", 60, run=["--grace", 60], env={"DUNLIN_HEARTBEAT": "60s"})
                killed_at = time.monotonic()
                os.kill(job.rank_pid(5), signal.SIGKILL)
                self.assertEqual(job.wait(), 128 + signal.SIGKILL)
                found = reports(job, r"error: .*rank 5.* is dead.*had waited .* s for|error: .*waited .*rank 5.*dead")
                self.assertEqual(sorted(found), [r for r in range(WORKERS) if r != 5], job.text())
                for rank, (moment, line) in found.items():
                    self.assertLess(moment - killed_at, 20, f"rank {rank}: {line}")

    def test_survivors_go_on_over_a_rebuilt_graph(self):
        for graph, victim in (("complete", 3), ("root-expander", 0)):
            with self.subTest(graph):
                if os.path.exists(self.json):
                    os.unlink(self.json)
                job = self.start("--graph", graph, "--on-peer-loss", "continue", run=["--keep-going"])
                before = len(events(self.json, "progress"))
                os.kill(job.rank_pid(victim), signal.SIGKILL)
                await_progress(job, self.json, before + 20)
                second = job.rank_pid(6)
                before = len(events(self.json, "progress"))
                os.kill(second, signal.SIGKILL)
                await_progress(job, self.json, before + 20)
                self.assertIsNone(job.process.poll(), job.text())
                self.assertEqual(len(reports(job, "epoch 1: continuing with 7 of 8")), 7, job.text())
                self.assertEqual(len(reports(job, "epoch 2: continuing with 6 of 7")), 6, job.text())
                os.killpg(job.process.pid, signal.SIGTERM)
                job.wait()

    def test_a_stopped_worker_is_named_as_stalled_at_the_deadline(self):
        # dunlin-run waits for the stopped worker as long as the others may take to report.
        job = self.start("--deadline", 3, "--graph", "ring", run=["--grace", 15])
        pid = job.rank_pid(2)
        stopped_at = time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        try:
            self.assertNotEqual(job.wait(60), 0)
        finally:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        found = reports(job, "error: peer_stalled: .*rank 2.*stalled")
        # Its successor on the ring waits for its model, at the least.
        self.assertIn(3, found, job.text())
        elapsed = found[3][0] - stopped_at
        self.assertTrue(2.5 < elapsed < 30, f"reported after {elapsed:.2f} s: {job.text()}")
        # The wait itself has ended at the deadline. A loaded host may tell of it later.
        waited = re.search(r"rank 3 waited (\d+\.\d+) s for", found[3][1])
        self.assertTrue(waited, found[3][1])
        self.assertTrue(3 <= float(waited.group(1)) < 10, found[3][1])

    def test_resume_after_a_kill_goes_on_from_the_last_common_checkpoint(self):
        base = self.path("model.ckpt")
        options = ["--checkpoint", base, "--checkpoint-every", 50]
        job = self.start(*options)
        os.kill(job.rank_pid(1), signal.SIGKILL)
        self.assertNotEqual(job.wait(), 0)
        newest = min(max(self.saved(base, rank)) for rank in range(WORKERS))
        self.assertGreater(newest, 0)

        again = Job([RUN, "-n", WORKERS, SVM, *ENDLESS, "--json-out", self.json + ".2", "--resume", base, *options])
        await_progress(again, self.json + ".2", 1)
        again.kill()
        first = events(self.json + ".2", "progress")[0]
        self.assertGreater(first["exchange"], newest)
        self.assertLessEqual(first["exchange"] - first["exchanges"], newest)
        self.assertGreaterEqual(first["exchange"] - first["exchanges"], newest - 50)

    def test_a_death_after_some_have_ended_loses_no_result(self):
        if TRANSPORT != "shm":
            self.skipTest(f"over {TRANSPORT}, puts need the receiver's progress: the others wait for a stopped rank")
        # A stopped rank is far behind the others in ASYNC, so that they end while it still trains.
        workers, behind = 4, 3
        for victim in (1, 0, behind):  # one that has ended, the one that reports, the one that trains
            with self.subTest(victim=victim):
                path = self.path(f"{victim}.jsonl")
                job = Job([RUN, "-n", workers, "--keep-going", SVM, *SMALL_STEPS, "--epochs", 200, "--sync", "async",
                           "--straggler", f"{behind}:20", "--on-peer-loss", "continue", "--json-out", path])
                self.addCleanup(job.kill)
                await_progress(job, path, 1)
                stopped = job.rank_pid(behind)
                os.kill(stopped, signal.SIGSTOP)
                planned = events(path, "config")[0]["exchanges"]
                await_progress(job, path, planned // 200)
                os.kill(job.rank_pid(victim), signal.SIGKILL)
                if victim != behind:
                    os.kill(stopped, signal.SIGCONT)
                self.assertEqual(job.wait(), 0, job.text())
                final = events(path, "final")
                self.assertEqual([(each["epoch"], each["all"]["exchanges"]) for each in final],
                                 [(1, (workers - 1) * planned)], job.text())

    def run_short(self, name, command, *options):
        """A short job of four ranks, which goes on after deaths, and what it reported at its end."""
        path = self.path(name)
        job = Job([RUN, "-n", 4, "--keep-going", *command, *SMALL_STEPS, "--epochs", 3, "--on-peer-loss", "continue",
                   "--json-out", path, *options])
        self.addCleanup(job.kill)
        return job, path

    def test_survivors_start_again_when_a_rank_dies_before_the_first_exchange(self):
        # The probe joins the job and dies at a known moment: before it does anything, or when the others have agreed on
        # something that they wait for it with.
        for victim, key in ((0, ""), (2, ""), (2, "svm/eta0/0 svm/terms/0"), (3, "svm/run/0 svm/terms/0")):
            for options in ((), ("--graph", "ring", "--sync", "bsp")):
                with self.subTest(victim=victim, key=key, options=options):
                    script = f'[ $DUNLIN_RANK = {victim} ] && exec {PROBE} die-after {key}; exec "$0" "$@"'
                    job, path = self.run_short(f"{victim}.{re.sub('[/ ]', '.', key)}.{len(options)}", ["sh", "-c", script, SVM],
                                               *options)
                    self.assertEqual(job.wait(), 0, job.text())
                    config, final = events(path, "config")[-1], events(path, "final")[-1]
                    self.assertEqual((config["workers"], final["epoch"]), (3, 1), job.text())
                    self.assertEqual(final["all"]["exchanges"], 3 * config["exchanges"], job.text())

    def test_survivors_resume_what_another_number_of_ranks_saved(self):
        # A pass is 40 exchanges of each of two ranks, and 20 of each of four.
        base = self.path("model.ckpt")
        self.final([RUN, "-n", 2, SVM, *SMALL_STEPS, "--epochs", 2, "--checkpoint", base])
        script = f'[ $DUNLIN_RANK = 2 ] && exec {PROBE} die-after svm/run/0 svm/terms/0; exec "$0" "$@"'
        job, path = self.run_short("resumed.jsonl", ["sh", "-c", script, SVM], "--resume", base)
        self.assertEqual(job.wait(), 0, job.text())
        config, final = events(path, "config")[-1], events(path, "final")[-1]
        self.assertEqual((config["workers"], config["exchanges"], final["epoch"]), (3, 60, 1), job.text())
        self.assertEqual(final["all"]["exchanges"], 3 * 20, job.text())

    def test_survivors_go_on_whenever_a_rank_dies(self):
        # The rank dies at any moment after it has joined, perhaps in the middle of the training.
        for trial in range(8):
            with self.subTest(trial=trial):
                job, path = self.run_short(f"{trial}.jsonl", [SVM], "--graph", "ring")
                victim = job.rank_pid(trial % 4)
                self.await_fabric(job, victim)
                time.sleep(0.01 * trial)
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # the job was faster
                self.assertEqual(job.wait(), 0, job.text())
                self.assertTrue(events(path, "final"), job.text())

    @staticmethod
    def await_fabric(job, pid):
        """Waits until a process has joined the job: its transports are made right after that."""
        while job.process.poll() is None:
            try:
                with open(f"/proc/{pid}/maps", encoding="ascii") as file:
                    if "memfd:dunlin" in file.read():
                        return
            except OSError:
                return
            time.sleep(0.001)

    @staticmethod
    def saved(base, rank):
        """The exchanges that a rank has checkpoints of."""
        folder, prefix = os.path.split(f"{base}.{rank}-of-{WORKERS}.")
        tails = [name[len(prefix):] for name in os.listdir(folder) if name.startswith(prefix)]
        return [int(tail) for tail in tails if tail.isdigit()]


if __name__ == "__main__":
    unittest.main(verbosity=2)
