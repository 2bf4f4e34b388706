"""The tidy rules. Each is a function from a Source to (line number, why) for each violation."""

import re

FLOORS = {"runtime": 0, "transports": 1, "collectives": 2, "apps": 3}
BACKENDS = ("shm", "ucx", "verbs", "cuda", "sim")
# Programs and tests stand beside the floors and may look at all of them.
BESIDE = ("tests", "bench", "tools")

# Headers of other libraries -> where alone they may be included. Benchmarks measure these libraries.
FOREIGN_HEADERS = (
    (re.compile(r"(ucp|ucs|uct)/"), ("transports/ucx/", "bench/")),
    (re.compile(r"(infiniband|rdma)/"), ("transports/verbs/", "tools/dunlin-info/rdma", "bench/")),
    (re.compile(r"(cuda|nvml)"), ("transports/cuda/", "collectives/kernels/", "tests/runtime/cuda_interface", "bench/")),
    (re.compile(r"pmix"), ("runtime/bootstrap/",)),
    (re.compile(r"(pybind11/|Python\.h)"), ("collectives/bindings/python/", "collectives/bindings/c10d/")),
    (re.compile(r"(torch/|ATen/|c10/)"), ("collectives/bindings/c10d/", "apps/cnn/network")),
    (re.compile(r"hwloc"), ("runtime/topology", "tools/dunlin-run/")),
)

MAX_LINES = 500


def _backend(path):
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "transports" and parts[1] in BACKENDS else None


def _matches(lines, pattern):
    for number, line in enumerate(lines, 1):
        if match := pattern.search(line):
            yield number, match.group()


def layers(source):
    """Includes point downward: runtime <- transports <- collectives <- apps."""
    if source.floor not in FLOORS:
        return
    for line, kind, included in source.includes:
        target = included.split("/")[0]
        if kind != "quote":
            continue
        if target in BESIDE:
            yield line, f"{source.floor}/ must not include {included}: {target}/ stands beside the floors"
        elif FLOORS.get(target, -1) > FLOORS[source.floor]:
            yield line, f"{source.floor}/ must not include {included}: includes point downward only"


def backends(source):
    """No header of a backend leaves its folder, except to transports/builtin.cc."""
    if source.floor not in FLOORS or source.path == "transports/builtin.cc":
        return
    for line, kind, included in source.includes:
        backend = _backend(included)
        if kind == "quote" and backend is not None and backend != _backend(source.path):
            yield line, f"{included} must not leave transports/{backend}/"


def foreign_headers(source):
    """Other libraries' headers stay in the one folder that wraps them."""
    if not source.is_cpp:
        return
    for line, _, included in source.includes:
        for pattern, places in FOREIGN_HEADERS:
            if pattern.match(included) and not source.path.startswith(places):
                yield line, f"<{included}> belongs in {' or '.join(places)} only"


def environment(source):
    """The environment is read by runtime/config alone."""
    if not source.is_cpp or source.floor == "tests" or source.path.startswith("runtime/config"):
        return
    pattern = re.compile(r"\b(secure_getenv|getenv|setenv|unsetenv|putenv|environ)\b")
    for line, word in _matches(source.code_lines, pattern):
        yield line, f"{word}: only runtime/config touches the environment; use Environment or Config"


def volatile(source):
    """volatile is not synchronisation."""
    if not source.is_cpp:
        return
    for line, _ in _matches(source.code_lines, re.compile(r"(?<!asm )(?<!asm__ )(?<!__asm )\bvolatile\b")):
        yield line, "volatile is not synchronisation; use std::atomic (asm volatile is allowed)"


def pragma_once(source):
    """Every header begins with #pragma once."""
    if source.is_header and "#pragma once" not in source.lines:
        yield 1, "the header has no #pragma once"


def unfinished(source):
    """Nothing is left to be done later."""
    for line, word in _matches(source.lines, re.compile(r"\b(TO[D]O|FIX[M]E|X[X]X)\b")):
        yield line, f"{word}: finish it or leave it out"


def machine_paths(source):
    """Nothing depends on somebody's machine."""
    for line, path in _matches(source.lines, re.compile(r"(?<![\w.}])/(work|root|home|Users)/\w+")):
        yield line, f"{path} exists on one machine only"


def length(source):
    """Files are short enough to be read at once."""
    if len(source.lines) >= MAX_LINES:
        yield MAX_LINES, f"{len(source.lines)} lines; files stay under {MAX_LINES}"


RULES = (layers, backends, foreign_headers, environment, volatile, pragma_once, unfinished, machine_paths, length)


def installed_headers(sources, public):
    """Public headers include nothing that isn't installed. `public`: paths of the installed ones."""
    for source in sources:
        if source.path not in public:
            continue
        for line, kind, included in source.includes:
            if kind == "quote" and included not in public:
                yield source.path, line, f"a public header includes {included}, which is not installed"


def violations(sources, public):
    """All of them, as "file:line: why"."""
    for source in sources:
        for rule in RULES:
            for line, why in rule(source):
                yield f"{source.path}:{line}: {why}"
    for path, line, why in installed_headers(sources, public):
        yield f"{path}:{line}: {why}"
