"""Jobs of PyTorch programs whose ranks are forked from one process that has loaded PyTorch, see warm_ranks.py.

    torch_jobs_test.py CLASS[.test_NAME]...

A class is a group of jobs below. A job passes if all of its ranks end with 0, but for those that kill themselves.
The environment says whether this build has UCX (TEST_HAS_UCX).
"""

import dataclasses
import importlib.util
import os
import secrets
import sys
import unittest

if importlib.util.find_spec("torch") is None:
    print("skipped: no module 'torch'")
    sys.exit(77)

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import LOADED, thorough  # noqa: E402
from warm_ranks import Warm  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
METHODS = os.path.join("..", "..", "examples", "python", "torch_methods.py")
# One method of each program is also run by dunlin-run (meson.build).
USUAL = ["all-reduce", "async-parameter-server", "partial"]
OTHERS = ["parameter-server", "local-sgd", "stochastic", "ad-psgd", "straggler-ring"]
HAS_UCX = "TEST_HAS_UCX" in os.environ
HAS_NETWORKX = importlib.util.find_spec("networkx") is not None
TWO_PER_HOST = {"DUNLIN_NODES_PER_MACHINE": "2"}


@dataclasses.dataclass
class Job:
    ranks: int
    command: str  # a program of this folder and its arguments
    variables: dict = dataclasses.field(default_factory=dict)
    killed: tuple = ()  # the ranks that kill themselves
    thorough: bool = False  # whether tools/check runs it with --all only


def killed(method):
    return Job(4, f"torch_methods_ends_test.py killed {method}", killed=(1,), thorough=method in OTHERS)


def example(method):
    return Job(3, f"{METHODS} --method {method}", thorough=method in OTHERS)


def by_ranks(program, *counts):
    return {str(ranks): Job(ranks, program) for ranks in counts}


GROUPS = {
    # BlueFog's interface.
    "Averages": {
        "1": Job(1, "torch_test.py"),
        "3": Job(3, "torch_test.py", thorough=True),
        "4": Job(4, "torch_test.py"),
        "machines_4": Job(4, "torch_test.py 2", TWO_PER_HOST, thorough=True),
        "windows_1": Job(1, "torch_window_test.py"),
        "windows_4": Job(4, "torch_window_test.py"),
        "rounding_3": Job(3, "torch_rounding_test.py"),
        "misuse_1": Job(1, "torch_misuse_test.py"),
        "misuse_3": Job(3, "torch_misuse_test.py"),
    },
    "Optimizers": {
        "1": Job(1, "torch_optimizer_test.py"),
        "3": Job(3, "torch_optimizer_test.py", thorough=True),
        "4": Job(4, "torch_optimizer_test.py", TWO_PER_HOST),
        "momentum_1": Job(1, "torch_momentum_test.py"),
        "momentum_3": Job(3, "torch_momentum_test.py", thorough=True),
        "momentum_4": Job(4, "torch_momentum_test.py", TWO_PER_HOST),
        "overlap_1": Job(1, "torch_overlap_test.py"),
        "overlap_4": Job(4, "torch_overlap_test.py", TWO_PER_HOST),
        "equivalence_1": Job(1, "torch_equivalence_test.py"),
        # By way of a ring, where partial sums travel.
        "equivalence_4": Job(4, "torch_equivalence_test.py", {**TWO_PER_HOST, "DUNLIN_ALGORITHMS": "all-reduce=ring"}),
    },
    "Methods": {
        "1": Job(1, "torch_methods_test.py"),
        "3": Job(3, "torch_methods_test.py", thorough=True),
        "4": Job(4, "torch_methods_test.py"),
        **({"ucx": Job(2, "torch_methods_test.py", {"DUNLIN_TRANSPORTS": "ucx"}, thorough=True)} if HAS_UCX else {}),
        "training_1": Job(1, "torch_training_test.py"),
        "wrap_1": Job(1, "torch_methods_wrap_test.py"),
        "wrap_3": Job(3, "torch_methods_wrap_test.py"),
    },
    "Training": {
        "machines_6": Job(6, "torch_test.py 2", {"BLUEFOG_NODES_PER_MACHINE": "3"}),
        "3": Job(3, "torch_training_test.py"),
        "absent": Job(3, "torch_methods_ends_test.py absent", {"DUNLIN_DEADLINE": "3s"}),
        "late_to_leave": Job(3, "torch_methods_ends_test.py late_to_leave", {"DUNLIN_DEADLINE": "3s"}),
        "killed_between_steps": Job(4, "torch_methods_ends_test.py killed_between parameter-server", killed=(1,)),
        **{f"killed_{method}": killed(method) for method in USUAL + OTHERS},
        **{f"example_{method}": example(method) for method in USUAL + OTHERS},
    },
    # The backend of torch.distributed.
    "Backend": {
        **by_ranks("c10d_test.py", 1, 2, 4),
        **{f"tensors_{name}": job for name, job in by_ranks("c10d_tensors_test.py", 1, 2, 3, 4).items()},
        **{f"training_{name}": job for name, job in by_ranks("c10d_training_test.py", 1, 2, 4).items()},
        **{f"staged_{name}": job for name, job in by_ranks("staged_test.py", 1, 2, 4).items()},
    },
    # On the stand-in for CUDA's driver, which LD_LIBRARY_PATH names.
    "Gpu": {
        **by_ranks("c10d_gpu_test.py", 1, 2, 3),
        "absent": Job(2, "c10d_gpu_test.py absent", {"DUNLIN_TRANSPORTS": "tcp"}),
        **({
            "package": Job(2, "torch_gpu_test.py"),
            "package_absent": Job(2, "torch_gpu_test.py absent", {"DUNLIN_TRANSPORTS": "tcp"}),
        } if HAS_NETWORKX else {}),
    },
    # The tests for a real GPU, on the stand-in.
    "Standin": {
        "1": Job(1, "torch_on_standin.py torch_cuda_test.py"),
        "2": Job(2, "torch_on_standin.py torch_cuda_test.py"),
        "absent": Job(2, "torch_on_standin.py torch_cuda_test.py PackageOnGpu", {"DUNLIN_TRANSPORTS": "tcp"}),
    },
}


def setUpModule():
    global warm
    warm = Warm({**os.environ, "DUNLIN_JOB_SECRET": secrets.token_hex(32)})
    unittest.addModuleCleanup(warm.close)


class JobsTest(unittest.TestCase):
    def check(self, job):
        program, *arguments = job.command.split()
        arguments = [os.path.join(HERE, part) if part.endswith(".py") else part for part in arguments]
        results = warm.run(job.ranks, os.path.join(HERE, program), *arguments, variables=job.variables,
                           seconds=60 * LOADED)
        codes = [code for code, _ in results]
        text = "\n".join(f"rank {rank}, exit code {code}:\n{said}" for rank, (code, said) in enumerate(results))
        if set(codes) == {77}:
            self.skipTest(results[0][1].strip().splitlines()[-1])
        self.assertEqual(codes, [-9 if rank in job.killed else 0 for rank in range(job.ranks)], text)
        self.assertNotRegex(text, r"Ran 0 tests")
        if "(skipped=" in text:
            print(text, file=sys.stderr)


def add_groups():
    for group, jobs in GROUPS.items():
        tests = {}
        for name, job in jobs.items():
            def test(self, job=job):
                self.check(job)
            tests[f"test_{name}"] = thorough(test) if job.thorough else test
        globals()[group] = type(group, (JobsTest,), {**tests, "__module__": __name__})


add_groups()

if __name__ == "__main__":
    unittest.main(verbosity=2)
