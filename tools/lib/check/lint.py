#!/usr/bin/env python3
"""Runs clang-tidy on the sources that a change touches.

    lint.py ROOT BUILD_DIR RESULTS --all|--since COMMIT [--jobs N]

A source is looked at when it changed since COMMIT, or when a header beside it with the same name did. BUILD_DIR's
compiler commands are used without the precompiled headers, which are GCC's. The user's cache (XDG_CACHE_HOME) remembers a
source that passed by its path, its text, that of the headers of ours that it includes, .clang-tidy, clang-tidy's version
and the compiler command. It is not looked at again until one of them changes, in whatever clone. A run
that was interrupted continues with the sources that have not passed.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import progress

FOLDERS = ("runtime", "transports", "collectives", "bindings", "apps", "tools", "bench", "tests", "examples")
# LibTorch's and pybind11's headers are too much for it to be worth the wait.
LEFT_OUT = ("bindings/c10d/", "bindings/python/", "apps/cnn/torch_network.cc", "tests/apps/cnn_network_test.cc",
            "tests/bindings/cuda_tensors.cc", "tests/bindings/torch_device.cc")
_INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<(dunlin/[^>]+)>)', re.MULTILINE)
PUBLIC = "bindings/cpp/"  # where <dunlin/...> is


def git(root, *arguments):
    return subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True).stdout


def changed_since(root, commit):
    """Paths that differ from the commit, also those that nobody has committed or added."""
    paths = set(git(root, "diff", "--name-only", "--diff-filter=d", commit).splitlines())
    return paths | set(git(root, "ls-files", "--others", "--exclude-standard").splitlines())


def chosen(sources, changed):
    """Of the sources, those that changed or whose own header did."""
    return [path for path in sources if path in changed or path.removesuffix(".cc") + ".h" in changed]


def without_precompiled(command):
    """A compiler command without what refers to GCC's precompiled header."""
    return re.sub(r" -fpch-preprocess| -include \S+| -Winvalid-pch", "", command)


def write_commands(root, build, folder):
    """A compile_commands.json for clang in the folder; {source, relative to the root: its command}."""
    entries = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    sources = {}
    for entry in entries:
        path = os.path.relpath(os.path.realpath(build / entry["file"]), root)
        if path.endswith(".cc") and path.startswith(tuple(f"{name}/" for name in FOLDERS)) and not path.startswith(LEFT_OUT):
            entry["command"] = without_precompiled(entry["command"])
            sources[path] = entry["command"]
    folder.mkdir(exist_ok=True)
    (folder / "compile_commands.json").write_text(json.dumps(entries), encoding="utf-8")
    return dict(sorted(sources.items()))


def fingerprint(root, path, command, version):
    """Of a source, its compiler command, the headers of ours that it includes, the settings, and clang-tidy itself."""
    found, todo = {".clang-tidy": (root / ".clang-tidy").read_text(encoding="utf-8")}, [path]
    while todo:
        name = todo.pop()
        if name in found or not (root / name).is_file():
            continue
        found[name] = (root / name).read_text(encoding="utf-8", errors="replace")
        for quoted, public in _INCLUDE.findall(found[name]):
            # Headers are included by their paths from the root, a few by those from the folder beside them.
            todo += [PUBLIC + public] if public else [quoted, os.path.normpath(os.path.join(os.path.dirname(name), quoted))]
    parts = [path, command.replace(str(root), ""), version, *(part for item in sorted(found.items()) for part in item)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def lint(root, commands, path):
    """What clang-tidy says against the source; "" when it passes."""
    done = subprocess.run(["clang-tidy", "--quiet", "--warnings-as-errors=*", "-p", str(commands), str(root / path)],
                          capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    return (done.stdout.strip() or done.stderr.strip()).replace(f"{root}/", "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("results", type=pathlib.Path)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true")
    which.add_argument("--since")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()

    folder = options.build / "clang-tidy"
    commands = write_commands(options.root, options.build, folder)
    if not commands:
        print(f"   {options.build} compiles none of the sources in {', '.join(FOLDERS)}")
        return 1  # tools/check takes the absent results for a failure
    sources = list(commands) if options.all else chosen(commands, changed_since(options.root, options.since))
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, text=True, check=True).stdout
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    memory = cache / "dunlin/clang_tidy.json"
    memory.parent.mkdir(parents=True, exist_ok=True)

    def remember():
        memory.with_suffix(".new").write_text(json.dumps(sorted(good)), encoding="utf-8")
        memory.with_suffix(".new").replace(memory)

    good = set(json.loads(memory.read_text(encoding="utf-8"))) if memory.is_file() else set()
    keys = {path: fingerprint(options.root, path, commands[path], version) for path in sources}
    todo = {path: key for path, key in keys.items() if key not in good}
    print(f"   {len(sources)} sources, {len(todo)} of them new or changed since they passed")

    began, failed = time.monotonic(), 0
    with progress.Ticker("sources looked at") as ticker, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        jobs = {pool.submit(lint, options.root, folder, path): path for path in todo}
        for done, job in enumerate(concurrent.futures.as_completed(jobs), 1):
            ticker.seen(done, len(jobs))
            if said := job.result():
                failed += 1
                print(f"\n{said}", flush=True)
            else:
                good.add(todo[jobs[job]])
                remember()
    entry = {"name": "clang-tidy", "result": "failed" if failed else "passed", "seconds": time.monotonic() - began,
             "reason": f"{failed} of {len(todo)} sources" if failed else ""}
    options.results.write_text(json.dumps([entry]), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
