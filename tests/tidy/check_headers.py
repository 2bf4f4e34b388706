#!/usr/bin/env python3
"""Shows that every header of the floors includes all that it needs.

    check_headers.py ROOT BUILD

A header is compiled alone, except when a source of this build includes it first and standard_names.py finds that it
includes the header of each standard name that it uses. With TEST_THOROUGH=1 in the environment, all are compiled alone.

Compiler and flags are those with which BUILD (a Meson build directory) compiles the library. Headers
of a folder none of whose sources this build compiles (a backend that is missing) are left out, and named.
The user's cache (XDG_CACHE_HOME) remembers which headers compiled, with everything of ours that they include and the
compiler's arguments. Those are not compiled again until something but a comment changes, in whatever clone.
"""

import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

import source
import standard_names

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from job import THOROUGH  # noqa: E402

FOLDERS = ("runtime", "transports", "collectives", "apps", "bindings", "bench", "tools", "tests", "examples")


def compile_commands(build):
    """{source path: arguments}, of the library's sources first."""
    with open(build / "compile_commands.json", encoding="utf-8") as file:
        entries = json.load(file)
    return {os.path.realpath(build / entry["file"]): shlex.split(entry["command"]) for entry in entries}


def flags(arguments):
    """The command without source, output, ccache, and the precompiled header, which would hide what is missing."""
    kept, left_out = [], ("-c", "-MD", "-fpch-preprocess", "-Winvalid-pch")
    rest = iter(arguments)
    for argument in rest:
        if argument in ("-o", "-MF", "-MQ", "-MT", "-include"):
            next(rest)
        elif argument not in left_out and not argument.endswith((".cc", "ccache")):
            kept.append(argument)
    return kept


@functools.lru_cache(maxsize=None)
def read(root, path):
    """The Source; None if it is not in the tree."""
    return source.Source(root, path) if (root / path).is_file() else None


def fingerprint(root, arguments, header):
    """Of the flags, the header, and all headers of ours that it includes."""
    tree = standard_names.tree_of(functools.partial(read, root), header.relative_to(root).as_posix())
    code = [text.code for _, text in sorted(tree.items())]
    return hashlib.sha256("\0".join(arguments + code).encode()).hexdigest()


def included_first(root, commands):
    """The headers that a source of this build includes before anything else but the precompiled header."""
    found = set()
    for path in commands:
        if path.startswith(f"{root}/") and os.path.isfile(path):
            for _, kind, included in read(root, os.path.relpath(path, root)).includes[:1]:
                if kind == "quote":
                    found.add(root / included)
    return found


def compile_alone(build, choices, header):
    """What the compiler says against the header with the last of the choices of arguments; "" when it compiles with one."""
    for arguments in choices:
        command = [*arguments, "-fsyntax-only", "-O0", "-x", "c++", "-"]
        done = subprocess.run(command, input=f'#include "{header}"\n', cwd=build, text=True, capture_output=True)
        if done.returncode == 0:
            return ""
    return done.stderr


def main():
    root, build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    commands = compile_commands(build)
    library = flags(commands[str(root / "runtime" / "status.cc")])
    compiled_folders = {os.path.dirname(path) for path in commands}

    headers, left_out = [], []
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.h")):
        if path.parent.name == "pch":
            continue  # the build compiles these by themselves
        has_sources = any(path.parent.glob("*.c*"))
        (headers if not has_sources or str(path.parent) in compiled_folders else left_out).append(path)
    if left_out:
        print("not in this build:", *(path.relative_to(root) for path in left_out))

    # The flags of a file beside the header know about the libraries that this folder uses; where there is no such file,
    # those of one that includes it do. Files of several programs in one folder have different ones.
    beside = {}
    for path, arguments in commands.items():
        if path.endswith(".cc"):
            choices = beside.setdefault(os.path.dirname(path), [])
            choices[:] = [flags(arguments), *(choice for choice in choices if choice != flags(arguments))]
    including = {}
    for path, arguments in commands.items():
        if path.endswith(".cc") and path.startswith(f"{root}/") and os.path.isfile(path):
            for _, _, included in read(root, os.path.relpath(path, root)).includes:
                including.setdefault(str(root / included), arguments)
    own = set() if THOROUGH else included_first(root, commands)
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    memory = cache / "dunlin/tidy_headers.json"
    good = set(json.loads(memory.read_text())) if memory.is_file() else set()
    jobs, shown = {}, 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path in headers:
            if path in own and standard_names.has_all(functools.partial(read, root), path.relative_to(root).as_posix()):
                shown += 1
                continue
            choices = beside.get(str(path.parent)) or [flags(including.get(str(path), ())) or library]
            key = fingerprint(root, choices[0], path)
            if key not in good:
                jobs[path, key] = pool.submit(compile_alone, build, choices, path)
    memory.parent.mkdir(parents=True, exist_ok=True)
    failures = 0
    for done, ((path, key), job) in enumerate(jobs.items(), 1):
        if message := job.result():
            failures += 1
            print(f"{path.relative_to(root)}:1: does not compile by itself:\n{message}")
        else:
            good.add(key)
        # Now and then, so that a run that is cut off was not in vain.
        if done % 20 == 0 or done == len(jobs):
            memory.write_text(json.dumps(sorted(good)))
    print(f"{len(headers)} headers, {shown} of them shown by sources, {len(jobs)} new or changed, {failures} do not compile "
          "by themselves")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
