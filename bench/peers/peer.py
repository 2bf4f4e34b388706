"""What the programs beside this file share: running commands, and dunlin-perf's figures."""
import json
import os
import pathlib
import platform
import subprocess

TIMEOUT = 120
# Lets root start jobs.
OPENMPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Failed(Exception):
    pass


def execute(command, environment=None, timeout=TIMEOUT):
    """Standard output of a command; Failed says what it said."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                                env=os.environ | (environment or {}), check=False)
    except subprocess.TimeoutExpired as expired:
        raise Failed(f"no end after {timeout} s") from expired
    if result.returncode != 0:
        text = (result.stderr.strip() or result.stdout.strip()).splitlines()
        raise Failed(text[-1] if text else f"exit code {result.returncode}")
    return result.stdout


class Dunlin:
    """dunlin-perf over one transport; figures from its JSON lines."""

    timeout = TIMEOUT

    def __init__(self, build, transport, environment=None):
        self.run = build / "tools/dunlin-run/dunlin-run"
        self.perf = build / "tools/dunlin-perf/dunlin-perf"
        self.transport = transport
        self.environment = environment or {}

    def command(self, ranks, arguments):
        return [str(self.run), "-n", str(ranks), "--no-tag", str(self.perf), *arguments,
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
