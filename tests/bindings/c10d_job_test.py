"""Whole jobs of the PyTorch backend: launchers, stores, deaths, deadlines, training.

    c10d_job_test.py DUNLIN_RUN [TEST...]
"""

import importlib.util
import os
import re
import secrets
import subprocess
import sys
import tempfile
import unittest

if importlib.util.find_spec("torch") is None:
    print("skipped: no module 'torch'")
    sys.exit(77)

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import LOADED, TORCHRUN, some  # noqa: E402
from ports import free_ports  # noqa: E402
from warm_ranks import Warm  # noqa: E402

RUN = sys.argv.pop(1)
HERE = os.path.dirname(os.path.abspath(__file__))
RANK = os.path.join(HERE, "c10d_rank.py")
ENDS_RANK = os.path.join(HERE, "c10d_ends_rank.py")
MONITORED_RANK = os.path.join(HERE, "c10d_monitored_rank.py")
RECEIVE_RANK = os.path.join(HERE, "c10d_receive_rank.py")
OPERATIONS = os.path.join(HERE, "c10d_test.py")
METHODS = os.path.join(HERE, "..", "..", "examples", "python", "torch_methods.py")
# On a loaded host, ranks may take longer than the default of 30 s to join.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "DUNLIN_DEADLINE": "20s", "DUNLIN_BOOTSTRAP_TIMEOUT": "120s"}
STANDALONE = [*TORCHRUN, "--standalone"]

# What should take milliseconds may take LONG on a loaded host. The job's deadline, ten heartbeats, and the time to
# reconnect that grows with them are far beyond that, so that what ends within LONG has not waited for them.
LONG = 60
PATIENT = {"DUNLIN_HEARTBEAT": "60s", "DUNLIN_DEADLINE": "300s"}


def finish(command, code=0, **variables):
    found = subprocess.run(command, env={**ENVIRONMENT, **variables}, capture_output=True, text=True,
                           timeout=LOADED * 100)
    text = found.stdout + found.stderr
    if found.returncode != code:
        raise AssertionError(f"exit code {found.returncode}:\n{text}")
    return text


def setUpModule():
    global warm
    warm = Warm(ENVIRONMENT)
    unittest.addModuleCleanup(warm.close)


def run(ranks, *arguments, killed=(), program=RANK, variables=None):
    """({rank: its lines}, all text) of a job of c10d_rank.py, in which these ranks kill themselves."""
    results = warm.run(ranks, program, *arguments, variables=variables, seconds=LOADED * 60)
    text = "\n".join(f"rank {rank}, exit code {code}:\n{said}" for rank, (code, said) in enumerate(results))
    if [code for code, _ in results] != [-9 if rank in killed else 0 for rank in range(ranks)]:
        raise AssertionError(text)
    # Lines of logs are left out: of PyTorch's C++ code, and what rank 0, which runs the coordinator, says of ends.
    logged = re.compile(r"WARNING|[WIE]\d{8}|\[[WIE]|dunlin\[0\] warning: bootstrap: the connection of rank \d+ at \S+ ended|"
                        r"dunlin\[\d+\] warning: bootstrap: rank 0.*the coordinator")
    return {rank: [line for line in said.splitlines() if not logged.match(line)]
            for rank, (_, said) in enumerate(results)}, text


def by_hand(method, part, ranks=2):
    """Processes that were started without a launcher."""
    environment = {name: value for name, value in ENVIRONMENT.items()
                   if not re.match("DUNLIN_(RANK|SIZE)|RANK|WORLD_SIZE|MASTER_", name)}
    processes = [subprocess.Popen([sys.executable, RANK, part, method], stdout=subprocess.PIPE, text=True,
                                  env={**environment, "TEST_RANK": str(rank), "TEST_SIZE": str(ranks)})
                 for rank in range(ranks)]
    return [process.communicate(timeout=LOADED * 60)[0].split("\n")[0] for process in processes]


class LaunchTest(unittest.TestCase):
    def test_torchrun(self):
        for ranks in some((2, 1, 4), 1):
            text = finish([*STANDALONE, "--nproc_per_node", str(ranks), OPERATIONS])
            self.assertEqual(len(re.findall(r"\]:ok$", text, re.M)), ranks, text)

    def test_torchrun_starts_dunlin_torch(self):
        if importlib.util.find_spec("networkx") is None:
            self.skipTest("no module 'networkx'")
        text = finish([*STANDALONE, "--nproc_per_node", "2", METHODS, "--method", "partial"],
                      DUNLIN_JOB_SECRET=secrets.token_hex(32), DUNLIN_BOOTSTRAP_PORT=str(free_ports()))
        self.assertRegex(text, r"partial: steps of the ranks .* largest error")

    def test_torchrun_within_another_job(self):
        text = finish([RUN, "-n", "1", *STANDALONE, "--nproc_per_node", "2", RANK, "sums"])
        self.assertEqual(text.count("sum 2"), 2, text)

    def test_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(by_hand(f"file://{folder}/store", "sums"), ["sum 2"] * 2)

    def test_an_address(self):
        self.assertEqual(by_hand(f"tcp://127.0.0.1:{free_ports(2)}", "sums", 3), ["sum 3"] * 3)

    def test_again(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(by_hand(f"file://{folder}/store", "again"), ["sum 2"] * 2)

    def test_again_at_once_over_one_port(self):
        # A rank that is earlier than rank 0 must not connect to the old server of the store.
        lines, text = run(3, "again_at_once")
        self.assertEqual(lines, {rank: ["sum 3"] * 10 for rank in range(3)}, text)

    def test_hosts_that_share_nothing_but_the_network(self):
        # Every rank seems to be on a host of its own.
        program = f"import os, runpy; os.environ['DUNLIN_HOST_ID'] = 'host' + os.environ['RANK']; " \
                  f"import sys; sys.argv = ['{RANK}', 'sums']; runpy.run_path('{RANK}', run_name='__main__')"
        text = finish([*STANDALONE, "--nproc_per_node", "2", "--no_python", sys.executable, "-c", program])
        self.assertEqual(text.count("sum 2"), 2, text)


class TrainingTest(unittest.TestCase):
    def test_ddp_ends_with_the_same_parameters_as_over_gloo(self):
        for ranks in some((2, 1, 4), 1):
            lines, text = run(ranks, "ddp")
            self.assertEqual(lines, {rank: ["same"] for rank in range(ranks)}, text)

    def expect_same(self, part, ranks):
        lines, text = run(ranks, part)
        if lines[0] and lines[0][0].startswith("skipped"):
            self.skipTest(lines[0][0])
        self.assertEqual(lines, {rank: ["same"] for rank in range(ranks)}, text)

    def test_fsdp_ends_with_the_same_parameters_as_over_gloo(self):
        for ranks in some((2, 1, 4), 1):
            self.expect_same("fsdp", ranks)

    def test_fully_shard_ends_with_the_same_parameters_as_over_gloo(self):
        for ranks in some((2, 1, 4), 1):
            self.expect_same("fully_shard", ranks)

    def test_callbacks_wait_for_other_calls(self):
        lines, text = run(2, "callbacks")
        self.assertEqual(lines, {rank: ["nested 4"] for rank in (0, 1)}, text)

    def test_gossip(self):
        for ranks in some((4, 2), 1):
            lines, text = run(ranks, "gossip")
            self.assertEqual(lines, {rank: ["mixed"] for rank in range(ranks)}, text)

    def test_straggler_ring(self):
        for ranks in some((4, 1), 1):
            lines, text = run(ranks, "straggler_ring")
            self.assertEqual(lines, {rank: ["same"] * 2 for rank in range(ranks)}, text)


class FailureTest(unittest.TestCase):
    def expect_death(self, said, text):
        found = re.match(r"after (\d+\.\d) s: dunlin: rank 1 is dead", said)
        self.assertTrue(found, text)
        self.assertLess(float(found.group(1)), LONG, text)

    def test_a_killed_peer_is_an_error_at_all_others(self):
        lines, text = run(4, "killed", killed=[1], variables=PATIENT)
        for rank in (0, 2, 3):
            self.expect_death(lines[rank][0], text)
            self.assertEqual(lines[rank][1:], ["destroyed"], text)

    def test_a_killed_peer_in_a_job_of_dunlin_run(self):
        text = finish([RUN, "-n", "3", "--keep-going", sys.executable, RANK, "killed"], **PATIENT)
        for rank in (0, 2):
            said = re.search(rf"(?m)^\[{rank}\] (after .*)", text)
            self.assertTrue(said, text)
            self.expect_death(said.group(1), text)
            self.assertIn(f"[{rank}] destroyed", text)

    def test_a_killed_peer_is_an_error_of_a_future(self):
        lines, text = run(3, "killed_future", killed=[1])
        for rank in (0, 2):
            self.assertRegex(lines[rank][0], r"future: .*rank 1 is dead", text)

    def test_the_groups_timeout(self):
        lines, text = run(2, "late", variables=PATIENT)
        for line in lines[0]:
            found = re.match(r"after (\d+\.\d) s: .*Timed out waiting 1 s: .*rank 1", line)
            self.assertTrue(found, text)
            self.assertTrue(0.9 <= float(found.group(1)) < LONG, text)
        self.assertEqual((len(lines[0]), lines[1]), (2, []), text)

    def test_too_many_calls_end_in_the_groups_time(self):
        lines, text = run(2, "crowded", variables=PATIENT)
        found = re.match(r"after (\d+\.\d) s: .*Timed out waiting 2 s: .*too many operations .*rank 1", lines[0][0])
        self.assertTrue(found, text)
        self.assertLess(float(found.group(1)), LONG, text)
        self.assertEqual(lines, {0: [lines[0][0], "True", "0 wrong"], 1: ["0 wrong"]}, text)

    def test_ctrl_c_while_a_call_waits_for_room(self):
        lines, text = run(2, "crowded_interrupted")
        self.assertEqual(lines, {0: ["1 interrupts, last 598 and 2"], 1: ["0 interrupts, last 598 and 2"]}, text)

    def test_what_is_over_keeps_no_memory(self):
        lines, text = run(2, "released")
        self.assertEqual(lines, {0: ["released"], 1: ["released"]}, text)

    def test_endless_timeouts(self):
        lines, text = run(2, "for_ever")
        self.assertEqual(lines, {0: ["sum 2"] * 2, 1: ["sum 2"] * 2}, text)

    def test_a_member_that_gives_up_is_named(self):
        lines, text = run(2, "gave_up", program=ENDS_RANK)
        self.assertEqual(lines[0], ["interrupted"], text)
        self.assertRegex(lines[1][0], "rank 0 of the group gave up", text)

    def test_a_member_that_gives_up_late_is_named(self):
        # Otherwise the other rank would wait for DUNLIN_DEADLINE, and name the missing one.
        lines, text = run(3, "gave_up_late", program=ENDS_RANK)
        self.assertEqual((lines[0], lines[2]), (["interrupted"], []), text)
        self.assertRegex(lines[1][0], "rank 0 of the group gave up", text)

    def test_a_member_whose_store_fails_is_named(self):
        lines, text = run(2, "failed_within", program=ENDS_RANK)
        self.assertRegex(lines[0][0], "the store is gone", text)
        self.assertRegex(lines[1][0], "rank 0 of the group gave up", text)

    def test_a_store_that_is_slow_and_then_gone_while_members_connect(self):
        lines, text = run(2, "slow_store", program=ENDS_RANK)
        self.assertEqual(lines, {0: ["done", "formed"], 1: ["formed"]}, text)

    def test_two_threads_form_groups_at_once(self):
        lines, text = run(2, "at_once")
        self.assertEqual(lines, {rank: ["formed [('a', 2.0), ('b', 2.0)]"] for rank in (0, 1)}, text)

    def test_shutdown_while_a_group_is_formed(self):
        lines, text = run(2, "leaves_while_forming", program=ENDS_RANK)
        self.assertRegex(lines[0][0], "shut down; dunlin: .*Dunlin was shut down", text)

    def test_abort(self):
        lines, text = run(2, "aborted")
        self.assertRegex(lines[0][0], "dunlin: the group was aborted", text)
        self.assertRegex(lines[0][1], "dunlin: the group was shut down", text)
        self.assertEqual([lines[0][2:], lines[1]], [["callback True", "barrier"], ["barrier"]], text)

    def test_signals_that_come_when_calls_end(self):
        lines, text = run(2, "interrupted_often")
        self.assertEqual(lines, {rank: ["ends"] for rank in (0, 1)}, text)

    def test_ctrl_c(self):
        lines, text = run(2, "interrupted")
        self.assertEqual(lines, {0: ["interrupted", "barrier"], 1: ["barrier"]}, text)

    def test_an_end_with_work_left(self):
        lines, text = run(2, "abandoned")
        self.assertEqual(lines, {0: ["ends"], 1: ["ends"]}, text)

    def test_who_has_left(self):
        lines, text = run(2, "left", program=ENDS_RANK)
        self.assertEqual(lines, {rank: ["dunlin: this process has left the job", "sum 2"] for rank in (0, 1)}, text)

    def test_a_shutdown_from_what_the_shutdown_releases(self):
        lines, text = run(2, "shut_down_twice", program=ENDS_RANK)
        self.assertEqual(lines, {0: [], 1: ["before []", "after [False]"]}, text)

    def test_what_is_under_way_when_the_backend_leaves(self):
        with tempfile.TemporaryDirectory() as folder:
            lines, text = run(2, "outlived", folder, program=ENDS_RANK)
        self.assertEqual(lines, {0: ["dunlin: Dunlin was shut down", "kept", "released"], 1: []}, text)

    def test_fork(self):
        lines, text = run(2, "forked", program=ENDS_RANK)
        self.assertEqual(lines, {0: ["child 0", "sum 2"], 1: ["sum 2"]}, text)

    def test_another_pytorch_is_refused(self):
        text = finish([sys.executable, "-c", "import torch; torch.__version__ = '0.4.1'; import dunlin.c10d"], code=1)
        self.assertRegex(text, r"was built for PyTorch \S+, but this is PyTorch 0\.4\.1", text)


class MonitoredTest(unittest.TestCase):
    def test_ranks_pass_together(self):
        lines, text = run(3, "passed", program=MONITORED_RANK)
        for rank in range(3):
            self.assertEqual([line.split(": ")[1] for line in lines[rank]], ["passed"] * 3, text)

    def test_no_time(self):
        lines, text = run(3, "at_once", program=MONITORED_RANK, variables=PATIENT)
        for line, said in zip(lines[0], ("Rank 0 timed out in monitoredBarrier after 0 ms",
                                         "Ranks 1, 2 failed to pass monitoredBarrier in 0 ms")):
            found = re.match(rf"(\d+\.\d) s: .*\[Rank 0\]: {said}", line)
            self.assertTrue(found, text)
            self.assertLess(float(found.group(1)), LONG, text)  # the group's timeout is 30 minutes

    def test_missing_ranks_are_named(self):
        lines, text = run(4, "some_missing", program=MONITORED_RANK)
        first = r"\[Rank 0\]: Rank 2 failed to pass monitoredBarrier in 5000 ms"
        all_of_them = r"\[Rank 0\]: Ranks 2, 3 failed to pass monitoredBarrier in 5000 ms"
        for rank in range(4):
            told = "" if rank == 0 else f"Rank {rank} successfully reached monitoredBarrier, but received errors while " \
                                        "waiting for send/recv from rank 0.*"
            for line, wanted in zip(lines[rank], (first, all_of_them)):
                self.assertRegex(line, told + wanted, text)
            self.assertRegex(lines[rank][2], "passed", text)

    def test_words_of_errors(self):
        lines, text = run(2, "words", program=MONITORED_RANK, killed=[1])
        waited, future, reduced, received, died = lines[0]
        for line, limit in ((waited, "0.5"), (future, "5"), (reduced, "5")):
            self.assertRegex(line, f" Timed out waiting {limit} s: rank 0 .* from rank 1", text)
            self.assertNotIn("waited 0.000 s", line, text)
        for line in (received, died):
            self.assertRegex(line, r"rank 1 is dead.*\(Connection closed by peer\)|"
                                   r"from rank 1, which is dead.*\(Connection closed by peer\)", text)


class ReceiveTest(unittest.TestCase):
    def test_receives_that_time_out_take_nothing(self):
        lines, text = run(2, "retried", program=RECEIVE_RANK)
        self.assertEqual(lines, {0: ["timed out", "[1, 2, 3]"] * 2 + ["shut down"], 1: ["shut down"]}, text)

    def test_aborted_receives_are_withdrawn(self):
        lines, text = run(2, "withdrawn", program=RECEIVE_RANK)
        self.assertEqual(lines, {0: ["dunlin: the group was aborted"] * 2 + ["sum 2", "shut down"],
                                 1: ["sum 2", "shut down"]}, text)

    def test_a_late_part_of_a_call_of_all_ranks(self):
        lines, text = run(2, "late_exchange", program=RECEIVE_RANK)
        self.assertEqual(lines, {0: ["timed out", "[20, 21]"], 1: ["[10, 11]", "[20, 21]"]}, text)

    def test_receives_from_any_rank_in_order(self):
        lines, text = run(2, "in_order", program=RECEIVE_RANK)
        self.assertEqual(lines, {0: ["[1, 2]"], 1: []}, text)

    def test_receives_from_any_rank_in_turn(self):
        lines, text = run(4, "in_turn", program=RECEIVE_RANK)
        self.assertEqual(lines[0], [str([1, 2, 3] * 3)], text)

    def test_a_death_between_announcement_and_data(self):
        lines, text = run(3, "died_in_between", program=RECEIVE_RANK, killed=[1, 2])
        self.assertEqual(lines[0][:2], ["dead", "from 2: 200000"], text)
        self.assertRegex(lines[0][2], "a message from any rank: all sources are dead", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
