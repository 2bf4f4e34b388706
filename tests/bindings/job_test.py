"""Whole jobs of the Python package: Ctrl-C, deadlines, deaths, overlap, ends.

    job_test.py DUNLIN_RUN TRANSPORT,... [TEST...]
"""

import importlib.util
import os
import re
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import Job, lines_by_rank, some  # noqa: E402

RUN = sys.argv.pop(1)
TRANSPORTS = some(sys.argv.pop(1).split(","), 1)  # to be tested in turn
RANK = os.path.join(os.path.dirname(__file__), "python_rank.py")
AVERAGES = os.path.join(os.path.dirname(__file__), "averages_rank.py")


# A death becomes known in milliseconds. A loaded host may take LONG. The deadline and ten heartbeats are far beyond that,
# so that an error within LONG comes from neither.
LONG = 60
DEATH = {"DUNLIN_HEARTBEAT": "60s"}


NOTEBOOK = """
import os, dunlin, numpy
for deadline in ("soon", "later", "20s", "20s"):
    os.environ["DUNLIN_DEADLINE"] = deadline
    try:
        dunlin.init()
        print("joined" if dunlin.all_reduce(numpy.ones(1))[0] == 1 else "wrong")
        dunlin.shutdown()
    except dunlin.InvalidArgumentError:
        print("refused, in a job:", dunlin.is_initialized())
"""


def run(ranks, *arguments, options=(), deadline=300, code=0, env=None, program=RANK):
    """{rank: its lines} of a job of python_rank.py, or another program, and the job."""
    began = time.monotonic()
    job = Job([RUN, "-n", ranks, *options, sys.executable, program, *arguments],
              env={"DUNLIN_DEADLINE": f"{deadline}s", **(env or {})})
    found = job.wait(120)
    job.took = time.monotonic() - began
    if code is not None and found != code:
        raise AssertionError(f"exit code {found}:\n{job.text()}")
    # On a busy host, a rank may say that it tries again to join.
    return lines_by_rank(job, ranks, without="dunlin warning: bootstrap: "), job


class JobTest(unittest.TestCase):
    def test_steps_are_recorded(self):
        with tempfile.TemporaryDirectory() as folder:
            metrics = os.path.join(folder, "%r.sock")
            lines, _ = run(2, "steps", env={"DUNLIN_FLIGHT": os.path.join(folder, "flight"), "METRICS": metrics,
                                            "DUNLIN_METRICS": "unix:" + metrics})
        self.assertEqual(lines, {0: ["2 steps"], 1: ["2 steps"]})

    def test_ctrl_c_ends_a_wait_and_not_the_operation(self):
        lines, job = run(2, "interrupted")
        found = re.fullmatch(r"interrupted after (\d+\.\d+) s", lines[0][0])
        self.assertTrue(found, job.text())
        # The other ranks come only afterwards, and the job's deadline is far beyond LONG.
        self.assertTrue(1.9 < float(found.group(1)) < LONG, job.text())
        self.assertEqual(lines[0][1:], ["sum", "waited"], job.text())
        self.assertEqual(lines[1], ["sum"], job.text())

    def test_a_wait_may_have_a_time_of_its_own(self):
        lines, job = run(2, "expired")
        for line, pattern in zip(lines[0], (r"expired after (\d+\.\d+) s$",
                                            r"text: rank 0 waited (\d+\.\d+) s for .*all-reduce.*from rank 1")):
            found = re.match(pattern, line)
            self.assertTrue(found, job.text())
            # The job's deadline is far beyond LONG.
            self.assertTrue(0.2 <= float(found.group(1)) < LONG, job.text())
        self.assertEqual(lines[0][2:] + lines[1], ["result 2", "result 2"], job.text())

    def test_what_a_rank_starts_does_not_inherit_the_secret(self):
        lines, job = run(2, "secret")
        self.assertEqual(lines, {rank: ["False False False"] for rank in (0, 1)}, job.text())

    def test_calls_of_different_names_are_an_error(self):
        packages = ["dunlin"] + (["torch"] if importlib.util.find_spec("torch") else [])
        for package in packages:
            lines, job = run(2, "named", package)
            for rank in (0, 1):
                self.assertEqual(lines[rank][0], "agreed", job.text())
                self.assertRegex(lines[rank][1], 'refused: .* make different calls: .*named "(a|b)".*, but .*named "(a|b)"',
                                 job.text())
                self.assertEqual(len(lines[rank]), 2, job.text())

    def test_every_collective_call_has_a_name(self):
        lines, job = run(2, "named_each")
        for rank in (0, 1):
            self.assertEqual(lines[rank], [f"{call}: named" for call in ("reduce", "all_gather", "reduce_scatter",
                                                                         "all_to_all", "barrier")], job.text())

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs PyTorch")
    def test_partial_calls_of_different_names_are_an_error(self):
        lines, job = run(2, "named", "partial")
        for rank in (0, 1):
            self.assertEqual(lines[rank][0], "agreed", job.text())
            self.assertRegex(lines[rank][1], f"refused: .*rank {1 - rank}", job.text())
            self.assertEqual(len(lines[rank]), 2, job.text())
        self.assertRegex(job.text(), 'rank [01] calls it with other members, or with another label; here, the label is "[ab]"')

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs PyTorch")
    def test_other_calls_of_different_names_match_by_name_or_are_an_error(self):
        refused = "refused: .* make different calls: "
        for call, said in some((("broadcast", refused), ("allgather", "matched"), ("local", refused),
                                ("hierarchical", refused)), 2):
            with self.subTest(call):
                lines, job = run(4, "named_others", call, env={"BLUEFOG_NODES_PER_MACHINE": "2"})
                for rank in range(4):
                    self.assertEqual(len(lines[rank]), 1, job.text())
                    self.assertRegex(lines[rank][0], said, job.text())

    def test_init_may_be_called_again(self):
        for ranks in (1, 2):
            lines, job = run(ranks, "joined_again")
            for rank in range(ranks):
                self.assertEqual(lines[rank], ["same job", "reloaded"], job.text())

    def test_init_begins_anew_after_an_error_and_after_shutdown(self):
        """Without a launcher, as in a notebook."""
        job = Job([sys.executable, "-c", NOTEBOOK], unset=[name for name in os.environ if name.startswith("DUNLIN_")])
        self.assertEqual(job.wait(60), 0, job.text())
        self.assertEqual([line for _, line in job.lines], [*2 * ["refused, in a job: False"], *2 * ["joined"]])

    def test_operations_go_on_while_python_computes(self):
        lines, job = run(2, "overlapping")
        self.assertEqual(lines, {0: ["computed, then True", "sum", "early"], 1: ["sum", "early"]}, job.text())

    def test_without_a_background_thread_they_wait_for_calls(self):
        lines, job = run(2, "overlapping", "quiet")
        self.assertEqual(lines[1], ["sum", "late"], job.text())

    def test_a_killed_peer_is_an_error_at_all_others(self):
        lines, job = run(4, "killed", options=["--keep-going"], env=DEATH)
        for rank in (0, 2, 3):
            self.assertRegex(lines[rank][0], r"peer 1 dead after \d+\.\d s: .*rank 1 is dead", job.text())
            self.assertEqual(lines[rank][1:], ["again 1"], job.text())
        self.assertLess(job.took, LONG, job.text())

    def test_who_only_tests_learns_of_a_death_as_well(self):
        for mode in ((), ("quiet",)):
            lines, job = run(3, "killed_while_testing", *mode, options=["--keep-going"], env=DEATH)
            self.assertEqual(lines, {0: ["peer 1 dead"], 1: [], 2: ["peer 1 dead"]}, job.text())

    def test_a_rank_that_ends_by_an_exception_does_not_wait(self):
        lines, job = run(3, "raising", options=["--keep-going"], code=None)
        for rank in (0, 2):
            self.assertRegex(lines[rank][0], r"peer 1 left after \d\.\d s", job.text())
        self.assertIn("ValueError: on purpose", job.text())

    def test_an_end_is_no_death(self):
        lines, job = run(3, "leaving")
        self.assertEqual(lines, {0: ["ends"], 1: ["sum"], 2: ["sum"]}, job.text())
        self.assertLess(job.took, LONG, job.text())

    def test_shutdown(self):
        lines, job = run(2, "shut_down")
        for rank in range(2):
            self.assertEqual(lines[rank], ["initialized False, memory 1", *(4 * ["closed"]), "over"], job.text())

    def test_threads(self):
        for mode in ((), ("quiet",)):
            lines, job = run(2, "threads", *mode)
            self.assertEqual(lines, {0: ["wrong []"], 1: ["wrong []"]}, job.text())

    def test_a_forked_child_leaves_the_job_alone(self):
        lines, job = run(2, "forked")
        self.assertEqual(lines, {0: ["child 0, sum 2"], 1: ["child 0, sum 2"]}, job.text())

    def test_a_mutex_survives_its_owner(self):
        lines, job = run(3, "owner_killed", options=["--keep-going"], env=DEATH)
        told = []
        for rank in (0, 2):
            found = re.fullmatch(r"died (\w+) after ([\d.]+) s", lines[rank][0])
            self.assertTrue(found, job.text())
            told.append(found.group(1))
            self.assertLess(float(found.group(2)), LONG, job.text())
            self.assertEqual(lines[rank][1:], ["freed without 1"], job.text())
        self.assertEqual(sorted(told), ["False", "True"], job.text())

    def test_an_owner_rank_that_computes_delays_no_other(self):
        for transports in TRANSPORTS:
            lines, job = run(3, "home_computes", env={"DUNLIN_TRANSPORTS": transports})
            self.assertEqual(lines, {0: ["early, slept"], 1: [], 2: []}, job.text())

    def test_a_member_that_dies_is_named_and_groups_without_it_go_on(self):
        for transports in TRANSPORTS:
            lines, job = run(4, "partial_killed", options=["--keep-going"], env={"DUNLIN_TRANSPORTS": transports, **DEATH})
            for rank in (0, 1, 3):
                found = re.fullmatch(r"peer 2 dead after ([\d.]+) s", lines[rank][0])
                self.assertTrue(found, job.text())
                self.assertLess(float(found.group(1)), LONG, job.text())
                self.assertEqual(lines[rank][1:], ["sum 4", "again 2"], job.text())

    def test_a_missing_member_delays_others_until_the_deadline_at_most(self):
        lines, job = run(3, "partial_absent", deadline=3)
        self.assertEqual(lines, {0: ["behind 2", "after the deadline", "peer 1 absent", "peer 1 absent"], 1: [],
                                 2: ["behind 2"]}, job.text())

    def test_training_in_groups_survives_who_forms_them(self):
        for transports in TRANSPORTS:
            lines, job = run(4, "groups_killed", options=["--keep-going"], env={"DUNLIN_TRANSPORTS": transports, **DEATH})
            for rank in (1, 2, 3):
                self.assertEqual(lines[rank], ["80 iterations, served by 1", "averages"], job.text())

    def test_averages_of_pairs_survive_a_death(self):
        for transports in TRANSPORTS:
            lines, job = run(4, "pairs_killed", options=["--keep-going"], env={"DUNLIN_TRANSPORTS": transports, **DEATH},
                             program=AVERAGES)
            for rank in (1, 2, 3):
                told = [line for line in lines[rank] if "warning: AD-PSGD continues without rank 0" not in line]
                self.assertEqual(told, ["60 iterations", "averages"], job.text())

    def test_asynchronous_servers_survive_a_worker_and_no_death_else_is_survived(self):
        for transports in TRANSPORTS:
            for victim, kind in ((0, "async"), (0, "sync"), (3, "async"), (3, "sync")):
                lines, job = run(4, "servers_killed", victim, kind, options=["--keep-going"],
                                 env={"DUNLIN_TRANSPORTS": transports, **DEATH}, program=AVERAGES)
                expected = [f"peer {victim} dead, model kept True", f"again {victim}"]
                for rank in {0, 1, 2, 3} - {victim}:
                    told = [line for line in lines[rank] if "warning: continuing without a worker" not in line]
                    self.assertEqual(told, ["went on"] if (victim, kind) == (0, "async") else expected, job.text())

    def test_a_death_ends_stochastic_reduces_at_all_ranks(self):
        for transports in TRANSPORTS:
            for sync in ("notify-ack", "bsp", "async"):
                lines, job = run(4, "stochastic_killed", sync, options=["--keep-going"],
                                 env={"DUNLIN_TRANSPORTS": transports, **DEATH}, program=AVERAGES)
                for rank in (0, 1, 3):
                    self.assertEqual(lines[rank], ["peer 2 dead, model kept True", "again 2"], job.text())

    def test_a_death_ends_all_reduces_of_a_straggler_ring_at_all_ranks(self):
        for transports in some(TRANSPORTS + ["tcp"], 1):
            lines, job = run(4, "ring_killed", options=["--keep-going"], env={"DUNLIN_TRANSPORTS": transports, **DEATH},
                             program=AVERAGES)
            for rank in (0, 1, 3):
                self.assertEqual(lines[rank], ["peer 2 dead", "again 2"], job.text())

    def test_a_rank_that_has_left_ends_a_stochastic_reduce(self):
        lines, job = run(2, "stochastic_left", options=["--keep-going"], code=None, program=AVERAGES)
        self.assertEqual(lines[0], ["peer 1 left", "again"], job.text())

    def test_a_rank_that_computes_after_its_stochastic_reduce_delays_no_other(self):
        for transports in TRANSPORTS + ["tcp"]:
            lines, job = run(2, "stochastic_computes", env={"DUNLIN_TRANSPORTS": transports}, program=AVERAGES)
            self.assertEqual(lines, {0: ["computed"], 1: ["model 0.5"]}, job.text())

    def test_ctrl_c_ends_the_wait_for_a_stochastic_reduce_only(self):
        lines, job = run(2, "stochastic_interrupted", program=AVERAGES)
        self.assertEqual(lines[0], ["interrupted, model 0.0", "in progress", "model 0.5"], job.text())

    def test_the_rank_that_forms_groups_delays_no_other_while_it_computes(self):
        for transports in TRANSPORTS:
            lines, job = run(3, "server_computes", env={"DUNLIN_TRANSPORTS": transports})
            served = ["averages, served by 0"]
            self.assertEqual(lines, {0: ["served"], 1: served, 2: served}, job.text())

    def test_waiting_for_room_sleeps(self):
        for mode in ((), ("quiet",)):
            lines, job = run(2, "crowded", *mode)
            self.assertEqual(lines, {0: ["slept", "sum 600"], 1: ["sum 600"]}, job.text())

    def test_ctrl_c_withdraws_a_wish_for_a_mutex(self):
        for transports in TRANSPORTS:
            lines, job = run(2, "interrupted_lock", env={"DUNLIN_TRANSPORTS": transports})
            self.assertEqual(lines, {0: ["interrupted"], 1: ["locked again"]}, job.text())

    def test_what_is_left_open_is_closed_in_the_end(self):
        lines, job = run(3, "left_open")
        for rank in range(3):
            self.assertEqual(lines[rank], ["tensor 100, average 3, gathered 100000", "closed"], job.text())

    def test_averages_that_are_left_open_end_with_the_job(self):
        lines, job = run(3, "left_open", program=AVERAGES)
        for rank in range(3):
            self.assertEqual(lines[rank], ["average 1, ended True", "closed"], job.text())

    def test_signals_of_the_launcher_end_it(self):
        job = Job([RUN, "-n", 2, sys.executable, "-c",
                   "import dunlin, time; dunlin.init(); print('ready', flush=True)\n"
                   "if dunlin.rank() == 1: time.sleep(100)\n"
                   "dunlin.barrier()"])
        deadline = time.monotonic() + 20
        while job.text().count("ready") < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        began = time.monotonic()
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(30), 128 + signal.SIGINT, job.text())
        self.assertLess(time.monotonic() - began, LONG, job.text())
        self.assertEqual(job.text().count("KeyboardInterrupt"), 2, job.text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
