"""The tidy rules. Each is a function from a Source to (line number, why) for each violation."""

import re

# Folders of one floor don't include one another.
FLOORS = {"runtime": 0, "transports": 1, "collectives": 2, "apps": 3, "bindings": 3}
BACKENDS = ("shm", "tcp", "ucx", "verbs", "sim")
# Programs and tests stand beside the floors and may look at all of them.
BESIDE = ("tests", "bench", "tools", "examples")

# Headers of other libraries -> where alone they may be included. Benchmarks measure these libraries.
FOREIGN_HEADERS = (
    (re.compile(r"(ucp|ucs|uct)/"), ("transports/ucx/", "bench/")),
    (re.compile(r"(infiniband|rdma)/"), ("transports/verbs/", "tools/dunlin-info/rdma", "tests/support/fake_verbs",
                                         "bench/")),
    (re.compile(r"(cuda|nvml)"), ("collectives/kernels/gpu/", "tests/runtime/cuda_interface", "bench/")),
    (re.compile(r"pmix"), ("runtime/bootstrap/",)),
    (re.compile(r"(pybind11/|Python\.h)"), ("bindings/python/", "bindings/c10d/", "bindings/pybind/")),
    (re.compile(r"(torch/|ATen/|c10/)"), ("bindings/c10d/", "apps/cnn/torch_network", "tests/bindings/cuda_tensors.cc",
                                          "tests/bindings/torch_device.cc")),
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
    """Includes point downward: runtime <- transports <- collectives <- apps, bindings."""
    if source.floor not in FLOORS:
        return
    for line, kind, included in source.includes:
        target = included.split("/")[0]
        if kind != "quote":
            continue
        if target in BESIDE:
            yield line, f"{source.floor}/ must not include {included}: {target}/ stands beside the floors"
        elif target != source.floor and FLOORS.get(target, -1) >= FLOORS[source.floor]:
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


def output_files(source):
    """Users' files are written by runtime/files alone, which replaces no device and follows no trap."""
    if source.floor == "tests" or not source.is_cpp or source.path.startswith("runtime/files/"):
        return
    # Its terminal; empty files to lock; files of a fixed size to map. The latter two lie in folders of this user.
    if source.path in ("tools/dunlin-run/output.cc", "runtime/core_claims.cc", "runtime/flight/folder.cc"):
        return
    for line, word in _matches(source.code_lines, re.compile(r"\b(ofstream|fopen|O_WRONLY|O_CREAT|O_TRUNC)\b")):
        yield line, f"{word}: only runtime/files writes files; use replace_file() or OutputStream"


def volatile(source):
    """volatile is not synchronization."""
    if not source.is_cpp:
        return
    for line, _ in _matches(source.code_lines, re.compile(r"(?<!asm )(?<!asm__ )(?<!__asm )\bvolatile\b")):
        yield line, "volatile is not synchronization; use std::atomic (asm volatile is allowed)"


def pragma_once(source):
    """Every header has #pragma once, but those that are compiled by themselves, as precompiled ones."""
    if source.is_header and "/pch/" not in source.path and "#pragma once" not in source.lines:
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


RULES = (layers, backends, foreign_headers, environment, output_files, volatile, pragma_once, unfinished, machine_paths, length)


# What a public header may include of C and C++, beside Dunlin's other public headers.
STANDARD_HEADERS = frozenset("""
    algorithm array atomic bit bitset cassert cctype cerrno cfloat charconv chrono cinttypes climits cmath compare
    complex concepts condition_variable coroutine cstddef cstdint cstdio cstdlib cstring ctime deque exception
    filesystem forward_list fstream functional future initializer_list iomanip ios iosfwd iostream istream iterator
    latch limits list locale map memory mutex new numbers numeric optional ostream queue random ranges ratio regex
    semaphore set shared_mutex source_location span sstream stack stdexcept stop_token string string_view system_error
    thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray variant vector version
    stddef.h stdint.h""".split())
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def _folder(path):
    """The folder of a floor that a file lies in, like "collectives/graph". None: the file lies in no such folder."""
    parts = path.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 and parts[0] in FLOORS else None


def _chain(arrows, start, goal):
    """The shortest list of folders from `start` to `goal` along `arrows` (folder -> included folders), or None."""
    previous = {start: None}
    queue = [start]
    while queue and goal not in previous:
        folder = queue.pop(0)
        for included in sorted(arrows.get(folder, ())):
            if included not in previous:
                previous[included] = folder
                queue.append(included)
    if goal not in previous:
        return None
    chain = [goal]
    while chain[0] != start:
        chain.insert(0, previous[chain[0]])
    return chain


def folder_cycles(sources):
    """Folders of a floor include one another in one direction only."""
    includes = []
    arrows = {}
    for source in sources:
        folder = _folder(source.path) if source.is_cpp else None
        for line, kind, included in source.includes if folder else ():
            target = _folder(included) if kind == "quote" else None
            if target and target != folder and target.split("/")[0] == source.floor:
                includes.append((source.path, line, folder, target))
                arrows.setdefault(folder, set()).add(target)
    for path, line, folder, target in includes:
        if chain := _chain(arrows, target, folder):
            yield path, line, f"folders include one another in a cycle: {' -> '.join([folder, *chain])}"


def installed_headers(headers):
    """The installed headers are a closed set: they include one another as <dunlin/...>, and standard headers.
    `headers`: {name below dunlin/: text}."""
    for name, text in sorted(headers.items()):
        for line, code in enumerate(text.splitlines(), 1):
            match = _INCLUDE.match(code)
            if match is None:
                continue
            bracket, included = match.groups()
            folder, _, rest = included.partition("/")
            if bracket == '"':
                yield name, line, f'includes "{included}", which is not installed'
            elif folder == "dunlin" and rest not in headers:
                yield name, line, f"includes <{included}>, which is not installed"
            elif folder != "dunlin" and included not in STANDARD_HEADERS:
                yield name, line, f"includes <{included}>, which is neither standard nor Dunlin's"


def violations(sources, headers=None):
    """All of them, as "file:line: why". `headers`: as installed_headers()."""
    for source in sources:
        for rule in RULES:
            for line, why in rule(source):
                yield f"{source.path}:{line}: {why}"
    for path, line, why in folder_cycles(sources):
        yield f"{path}:{line}: {why}"
    for name, line, why in installed_headers(headers or {}):
        yield f"<dunlin/{name}>:{line}: {why}"
