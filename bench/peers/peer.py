"""What the programs in this folder share: finding peers, running commands, and reading figures."""
import dataclasses
import json
import os
import pathlib
import platform
import shutil
import socket
import subprocess
from collections.abc import Callable
from typing import Any

TIMEOUT = 120
CORES = len(os.sched_getaffinity(0))
# Permits root to start jobs.
OPENMPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Failed(Exception):
    pass


class Unusable(Failed):
    """A peer that is installed, but cannot be measured here."""


def execute(command, environment=None, timeout=TIMEOUT):
    """Returns the standard output of a command. Raises Failed with the command's error."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                                env=os.environ | (environment or {}), check=False)
    except subprocess.TimeoutExpired as expired:
        raise Failed(f"it did not end within {timeout} s") from expired
    except FileNotFoundError as absent:
        raise Failed(f"{absent.filename} is not there") from absent
    if result.returncode != 0:
        text = (result.stderr.strip() or result.stdout.strip()).splitlines()
        errors = [line for line in text if "error" in line]
        raise Failed((errors or text[-1:] or [f"exit code {result.returncode}"])[0])
    return result.stdout


def free_port():
    """A TCP port that nothing uses now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def perf_of_hosts(commands, environment, timeout=TIMEOUT):
    """Runs a job of dunlin-perf, by one command for each host, and returns the figures of its last JSON line."""
    jobs = [subprocess.Popen(command, env=environment | {"DUNLIN_HOST_ID": f"host-{host}"}, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE) for host, command in enumerate(commands)]
    try:
        outputs = [job.communicate(timeout=timeout) for job in jobs]
    except subprocess.TimeoutExpired as expired:
        raise Failed(f"it did not end within {timeout} s") from expired
    finally:
        for job in jobs:
            job.kill()
    lines = [line for output, _ in outputs for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise Failed(next((error.splitlines()[-1] for _, error in outputs if error.strip()), "no figures"))
    return json.loads(lines[-1])


def compile_mpi(compiler, source, program):
    execute([compiler, "-O2", "-o", program, str(source)])


def openmpi_command(ranks, command):
    """Distributes the ranks over the cores. Ranks that share a core yield when idle."""
    sharing = ["--oversubscribe"] if ranks > CORES else []
    return ["mpirun.openmpi", "-n", str(ranks), *sharing, "--map-by", "core", "--bind-to", "core:overload-allowed",
            *command]


def run_openmpi(ranks, command):
    """Runs an Open MPI job and returns the standard output of its ranks."""
    return execute(openmpi_command(ranks, command), OPENMPI_ENVIRONMENT)


def run_mpich(ranks, command):
    """The same with MPICH, whose ranks do not yield even if they share cores."""
    return execute(["mpirun.mpich", "-n", str(ranks), "-bind-to", "core", *command])


@dataclasses.dataclass
class Candidate:
    """A peer that may be installed."""

    name: str
    tools: tuple[str, ...]  # commands that it needs, first its compiler
    make: Callable[[], Any]  # makes the object that runs it; raises Unusable if it cannot be measured here
    header: tuple[str, str] | None = None  # (a header that the compiler must find, the language)

    def missing(self):
        absent = [tool for tool in self.tools if shutil.which(tool) is None]
        if not absent and self.header and not has_header(self.tools[0], *self.header):
            absent = [self.header[0]]
        return absent


def has_header(compiler, header, language):
    """Whether the compiler finds the header. A library that is not installed is not a compile error."""
    command = [compiler, "-fsyntax-only", "-x", language, "-include", header, "/dev/null"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def make_peers(candidates):
    """Makes the peers that are installed. Returns them, and a line about each of the others with the reason."""
    peers, missing = [], []
    for candidate in candidates:
        if absent := candidate.missing():
            missing.append(f"{candidate.name}: no {', '.join(absent)}")
            continue
        try:
            peers.append(candidate.make())
        except Unusable as reason:
            missing.append(f"{candidate.name}: {reason}")
    return peers, missing


def check_launcher(compiler, launch, directory):
    """Raises Unusable if the launcher's processes do not find one another, as with MPICH of Ubuntu 24.04."""
    program = str(directory / f"ranks.{compiler}")
    compile_mpi(compiler, pathlib.Path(__file__).resolve().parent / "mpi" / "ranks.c", program)
    try:
        ranks = read_figures(launch(2, [program])).get("ranks")
    except Failed as failure:
        raise Unusable(f"its launcher fails: {failure}") from failure
    if ranks != 2:
        raise Unusable("its launcher starts two jobs of one rank instead of one job of two")


def read_figures(output):
    """Returns {name: value} for the lines "NAME VALUE"."""
    figures = {}
    for line in output.splitlines():
        words = line.split()
        if len(words) == 2:
            figures[words[0]] = float(words[1])
    if not figures:
        raise Failed("its output has no figures")
    return figures


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def number(value, digits=3):
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.{digits}g}"


class Dunlin:
    """Runs dunlin-perf over one transport, and reads the figures from its JSON lines."""

    timeout = TIMEOUT

    def __init__(self, build, transport, environment=None):
        self.run = build / "tools/dunlin-run/dunlin-run"
        self.perf = build / "tools/dunlin-perf/dunlin-perf"
        self.transport = transport
        self.environment = environment or {}

    def command(self, ranks, arguments):
        return [str(self.run), "-n", str(ranks), "--bind", "shared", "--no-tag", str(self.perf), *arguments,
                "--transport", self.transport]

    def measure(self, ranks, arguments, *fields, json_options=("--json",)):
        output = execute([*self.command(ranks, arguments), *json_options], self.environment, self.timeout)
        # UCX writes its warnings to standard output, too.
        lines = [text for text in output.splitlines() if text.startswith("{")]
        if not lines:
            raise Failed("its output has no figures")
        line = json.loads(lines[-1])
        return [line[field] if field != "limit" else line["limit"]["p50_us"] for field in fields]


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
