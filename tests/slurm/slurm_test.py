"""Jobs under Slurm: srun starts them, further steps join them, and a job that is requeued resumes.

    slurm_test.py DUNLIN_RUN DUNLIN_SVM DUNLIN_PLOT
"""

import os
import secrets
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cluster import Cluster, missing  # noqa: E402
from job import ElasticTest, Job, JobTest, await_progress, events  # noqa: E402
from ports import free_ports  # noqa: E402

if lack := missing():
    print(f"skipped: needs {lack}")
    sys.exit(77)

RUN, SVM, PLOT = map(os.path.abspath, sys.argv[1:4])
del sys.argv[1:4]

DATA = ["--generate", "--rows", 4000, "--features", 2000, "--nonzeros", 20, "--quiet"]
SECRET = secrets.token_hex(32)
# Makes the ranks of a node those of a host.
ON_HOSTS = ["bash", "-c", 'DUNLIN_HOST_ID=$SLURMD_NODENAME exec "$@"', "bash"]


def setUpModule():
    global cluster
    cluster = Cluster()
    unittest.addModuleCleanup(cluster.close)


def start(test, *command, **variables):
    job = Job(command, env={**cluster.variables, **variables}, unset=cluster.unset)
    test.addCleanup(job.kill)
    return job


class Start(JobTest):
    def final_of(self, name, *command, **variables):
        path = self.path(name)
        job = start(self, *command, SVM, *DATA, "--epochs", 3, "--json-out", path, **variables)
        self.assertEqual(job.wait(), 0, job.text())
        return events(path, "final")[-1]

    def test_a_job_on_two_nodes_has_the_result_of_one_on_a_host(self):
        alone = self.final_of("alone", RUN, "-n", 4)
        spread = self.final_of("spread", "srun", "-N", 2, "-n", 4, "--ntasks-per-node", 2, "--mpi=pmix", *ON_HOSTS)
        self.assertEqual(spread["objective"], alone["objective"])

    def test_dunlin_run_on_each_node(self):
        port = free_ports()
        ranks = f'exec "$0" -n 2 --size 4 --first-rank $((2 * SLURM_PROCID)) --coordinator 127.0.0.1:{port} "$@"'
        alone = self.final_of("alone", RUN, "-n", 4)
        spread = self.final_of("spread", "srun", "-N", 2, "-n", 2, "--mpi=none", *ON_HOSTS, "bash", "-c", ranks, RUN,
                               DUNLIN_JOB_SECRET=SECRET)
        self.assertEqual(spread["objective"], alone["objective"])

    def test_a_job_that_may_grow_needs_an_address(self):
        job = start(self, "srun", "-n", 2, "--mpi=pmix", SVM, *DATA, DUNLIN_MAX_RANKS="4")
        self.assertNotEqual(job.wait(), 0)
        self.assertIn("DUNLIN_MAX_RANKS is set and DUNLIN_BOOTSTRAP_ADDRESS is not", job.text())


class Steps(ElasticTest):
    plot = [PLOT, "svm"]
    training = [SVM, *DATA, "--sync-every", 50, "--eval-every", 200, "--on-peer-loss", "continue", "--epochs", 1e6]

    def seen(self, kind):
        return sorted(super().seen(kind))  # those of one step come and go in any order

    def test_steps_join_and_leave(self):
        variables = {"DUNLIN_BOOTSTRAP_ADDRESS": f"127.0.0.1:{free_ports()}", "DUNLIN_MAX_RANKS": "8",
                     "DUNLIN_JOB_SECRET": SECRET}
        cluster.output("salloc", "--no-shell", "-N", "2", "-n", "8", "--ntasks-per-node", "4")
        number = cluster.output("squeue", "-h", "-o", "%i").strip()
        self.addCleanup(cluster.output, "scancel", number)
        within = ["srun", "--jobid", number, "--overlap"]
        founders = start(self, *within, "-N", 2, "-n", 3, "--mpi=pmix", *ON_HOSTS, *self.training,
                         "--json-out", self.json, **variables)
        await_progress(founders, self.json)
        newcomers = start(self, *within, "-N", 1, "-n", 2, "-w", "b", "--mpi=none", *ON_HOSTS, *self.training,
                          DUNLIN_JOIN="on", **variables)
        self.await_workers(newcomers, 5)
        step = f"{number}.1"
        self.assertIn(step, cluster.output("squeue", "-h", "-s", "-o", "%i").split())
        # It fails if the ranks leave before it asks whether they have.
        cluster.run("scancel", "--signal=TERM", step)
        self.await_workers(founders, 3)
        self.assertEqual((self.seen("joined"), self.seen("left"), self.seen("died")), ([3, 4], [3, 4], []))
        self.assertEqual(newcomers.wait(), 0, newcomers.text())
        self.assertIn("leaves the job", newcomers.text())
        again = start(self, *within, "-N", 1, "-n", 1, "-w", "a", "--mpi=none", *ON_HOSTS, *self.training,
                      DUNLIN_JOIN="on", **variables)
        self.await_workers(again, 4)
        self.assertEqual(self.seen("joined"), [3, 4, 5])


class Requeue(JobTest):
    def test_a_requeued_job_resumes_on_the_nodes_that_are_left(self):
        script = self.path("job.sh")
        checkpoint, log, path = self.path("model"), self.path("log"), self.path("run.jsonl")
        with open(script, "w", encoding="ascii") as file:
            file.write("#!/bin/bash\n"
                       f"compgen -G '{checkpoint}.*' >/dev/null && resume='--resume {checkpoint}'\n"
                       f"srun -n $((2 * SLURM_JOB_NUM_NODES)) --mpi=pmix {SVM} {' '.join(map(str, DATA))} --epochs 400 "
                       f"--checkpoint {checkpoint} --checkpoint-every 50 $resume "
                       f"--json-out {path}.${{SLURM_RESTART_COUNT:-0}}\n")
        number = cluster.output("sbatch", "--parsable", "--requeue", "-N", "2", "--ntasks-per-node", "2", "-o", log,
                                script).strip()
        os.symlink(path + ".0", path)
        job = start(self, "sleep", "infinity")
        await_progress(job, path)
        cluster.output("scontrol", "update", "nodename=b", "state=drain", "reason=test")
        self.addCleanup(cluster.output, "scontrol", "update", "nodename=b", "state=resume")
        cluster.output("scontrol", "requeue", number)
        # It would wait for two nodes, and until its credentials have expired.
        cluster.await_output("PD\n", "squeue", "-h", "-o", "%t")
        cluster.output("scontrol", "update", f"jobid={number}", "numnodes=1", "numtasks=2", "starttime=now")
        cluster.await_output("", "squeue", "-h", seconds=600)
        with open(log, encoding="utf-8") as file:
            text = file.read()
        first, second = events(path + ".0", "config")[0], events(path + ".1", "config")[0]
        self.assertEqual((first["workers"], second["workers"]), (4, 2), text)
        self.assertGreater(events(path + ".1", "progress")[0]["exchange"], 50, text)
        self.assertTrue(events(path + ".1", "final"), text)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # with the cleanups, which end the cluster
    unittest.main(verbosity=2)
