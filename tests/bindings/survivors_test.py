"""Jobs that go on after deaths: init(on_peer_loss="continue"). Ranks are killed by SIGKILL in the middle of their work.

    survivors_test.py DUNLIN_RUN CASES...
"""

import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import Job, JobTest  # noqa: E402

RUN = sys.argv.pop(1)
HERE = os.path.dirname(os.path.abspath(__file__))


class SurvivorsTest(JobTest):
    program = "survivors_rank.py"
    ranks = 4

    def run_case(self, *arguments, dead=(), env=None):
        """All ranks but the dead ones say at their end that they have survived. Returns what the job has printed."""
        job = self.start(*arguments, env=env)
        job.wait()
        self.check(job, dead)
        return job.text()

    def start(self, *arguments, env=None):
        job = Job([RUN, "-n", self.ranks, "--keep-going", sys.executable, os.path.join(HERE, self.program), *arguments],
                  env=env)
        self.addCleanup(job.kill)
        return job

    def check(self, job, dead):
        for rank in range(self.ranks):
            said = f"rank {rank} has survived" in job.text()
            self.assertEqual(said, rank not in dead, job.text())
        self.assertNotIn("Traceback", job.text())


class Arrays(SurvivorsTest):
    def test_the_mean_of_the_survivors_stays(self):
        self.run_case("mean", "1:5", dead=[1])

    def test_two_deaths(self):
        self.run_case("mean", "1:5", "3:9", dead=[1, 3])

    def test_two_deaths_at_once(self):
        self.run_case("mean", "2:6", "3:6", dead=[2, 3])

    def test_the_death_of_rank_0(self):
        self.run_case("mean", "0:5", dead=[0])

    def test_over_tcp(self):
        self.run_case("mean", "1:5", dead=[1], env={"DUNLIN_TRANSPORTS": "tcp"})

    def test_the_sum_of_pushed_shares_stays(self):
        self.run_case("sum", "1:5", "2:8", dead=[1, 2])

    def test_a_death_at_any_moment(self):
        job = self.start("moment")
        self.await_condition(job, lambda: all(f"rank {rank} averages" in job.text() for rank in range(4)))
        os.kill(job.rank_pid(2), signal.SIGKILL)
        job.wait()
        self.check(job, [2])

    def test_gathers_leave_out_the_dead(self):
        self.run_case("gather", "1:3", dead=[1])

    def test_collectives_after_an_agreement(self):
        self.run_case("reform", "0:4", "2:9", dead=[0, 2])

    def test_windows(self):
        self.run_case("windows", "1:5", dead=[1])

    def test_windows_share_what_was_for_the_dead(self):
        self.run_case("shares", "1:5", dead=[1])

    def test_messages_from_before_an_agreement_are_not_taken_for_later_ones(self):
        self.run_case("epochs", "1:3", dead=[1])

    def test_without_asking_for_it_a_death_is_an_error(self):
        self.run_case("raise", "1:5", dead=[1])

    def test_all_ranks_ask_for_it_or_none(self):
        self.run_case("some", dead=[])


class Torch(SurvivorsTest):
    program = "torch_survivors_rank.py"

    def test_topologies(self):
        self.run_case("topologies", "1:5", dead=[1])

    def test_the_default_topology_is_made_anew(self):
        self.run_case("reform", "0:4", dead=[0])

    def test_optimizers(self):
        self.run_case("optimizers", "1:4", dead=[1])

    def test_win_put(self):
        self.run_case("win_put", "1:4", dead=[1])

    def test_what_does_not_survive_says_so(self):
        self.run_case("refused", dead=[])


class Backend(SurvivorsTest):
    program = "torch_survivors_rank.py"

    def test_gossip_hook(self):
        self.run_case("gossip", "1:5", "2:9", dead=[1, 2])

    def test_gossip_hook_without_rank_0(self):
        self.run_case("gossip", "0:5", dead=[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
