"""What the programs beside this file share: running commands, and dunlin-perf's figures."""
import json
import os
import pathlib
import platform
import subprocess

TIMEOUT = 120
CORES = len(os.sched_getaffinity(0))
# Lets root start jobs.
OPENMPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Failed(Exception):
    pass


class Unusable(Failed):
    """A peer that is installed, but can't be measured here."""


def execute(command, environment=None, timeout=TIMEOUT):
    """Standard output of a command; Failed says what it said."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                                env=os.environ | (environment or {}), check=False)
    except subprocess.TimeoutExpired as expired:
        raise Failed(f"no end after {timeout} s") from expired
    if result.returncode != 0:
        text = (result.stderr.strip() or result.stdout.strip()).splitlines()
        errors = [line for line in text if "error" in line]
        raise Failed((errors or text[-1:] or [f"exit code {result.returncode}"])[0])
    return result.stdout


def compile_mpi(compiler, source, program):
    execute([compiler, "-O2", "-o", program, str(source)])


def openmpi_command(ranks, command):
    """Deals the ranks out over the cores; where they share them, they yield when idle."""
    sharing = ["--oversubscribe"] if ranks > CORES else []
    return ["mpirun.openmpi", "-n", str(ranks), *sharing, "--map-by", "core", "--bind-to", "core:overload-allowed",
            *command]


def run_openmpi(ranks, command):
    """Standard output of its ranks."""
    return execute(openmpi_command(ranks, command), OPENMPI_ENVIRONMENT)


def run_mpich(ranks, command):
    """The same with MPICH, whose ranks don't yield where they share cores."""
    return execute(["mpirun.mpich", "-n", str(ranks), "-bind-to", "core", *command])


def check_launcher(compiler, launch, directory):
    """Unusable where its processes don't find one another, as those of Ubuntu 24.04's MPICH."""
    program = str(directory / f"ranks.{compiler}")
    compile_mpi(compiler, pathlib.Path(__file__).resolve().parent / "mpi" / "ranks.c", program)
    try:
        ranks = read_figures(launch(2, [program])).get("ranks")
    except Failed as failure:
        raise Unusable(f"its launcher fails: {failure}") from failure
    if ranks != 2:
        raise Unusable("its launcher starts two jobs of a rank instead of one of two")


def read_figures(output):
    """{name: value} of lines "NAME VALUE"."""
    figures = {}
    for line in output.splitlines():
        words = line.split()
        if len(words) == 2:
            figures[words[0]] = float(words[1])
    if not figures:
        raise Failed("no figures in its output")
    return figures


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


class Dunlin:
    """dunlin-perf over one transport; figures from its JSON lines."""

    timeout = TIMEOUT

    def __init__(self, build, transport, environment=None):
        self.run = build / "tools/dunlin-run/dunlin-run"
        self.perf = build / "tools/dunlin-perf/dunlin-perf"
        self.transport = transport
        self.environment = environment or {}

    def command(self, ranks, arguments):
        return [str(self.run), "-n", str(ranks), "--bind", "shared", "--no-tag", str(self.perf), *arguments,
                "--transport", self.transport]

    def measure(self, ranks, arguments, *fields):
        output = execute(self.command(ranks, arguments) + ["--json", "-"], self.environment,
                         self.timeout)
        # UCX writes its warnings to standard output as well.
        line = json.loads([text for text in output.splitlines() if text.startswith("{")][-1])
        return [line[field] if field != "limit" else line["limit"]["p50_us"] for field in fields]


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
