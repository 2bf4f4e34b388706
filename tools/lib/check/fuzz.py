#!/usr/bin/env python3
"""Runs the fuzzers of a build with libFuzzer, several at a time.

    fuzz.py BUILD CORPUS RESULTS [--seconds N] [--jobs N] [NAME...]

Each fuzzer begins with the files in CORPUS/NAME and with what earlier runs have found in BUILD/corpus/NAME, where it
adds inputs that reach further. An input that ends it lies in BUILD/found then. RESULTS becomes a list of entries
{name, result, seconds, reason}.
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import time

PREFIX = "fuzz_"
# An input that takes longer, in seconds, or more memory, in MB, is a finding.
TIMEOUT, MEMORY = 20, 2048


def runs_of(log):
    """How many inputs it ran, from the statistics at its end."""
    found = re.search(r"stat::number_of_executed_units:\s*(\d+)", log)
    return int(found.group(1)) if found else 0


def fuzz(program, corpus, build, seconds):
    name = program.name[len(PREFIX):]
    own, found = build / "corpus" / name, build / "found"
    for folder in (own, found):
        folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    done = subprocess.run(
        [program, own, corpus / name, f"-max_total_time={seconds}", f"-timeout={TIMEOUT}", f"-rss_limit_mb={MEMORY}",
         "-print_final_stats=1", f"-artifact_prefix={found}/{name}-"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    runs = runs_of(done.stdout)
    is_ok = done.returncode == 0 and runs > 0
    if is_ok:
        print(f"   {name}: {runs} inputs", flush=True)
    else:
        print(f"   {name}: FAILED\n{done.stdout[-4000:]}", flush=True)
    return {"name": f"fuzz {name}", "result": "passed" if is_ok else "failed",
            "seconds": round(time.monotonic() - began), "reason": "" if is_ok else f"see {found}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*")
    words = parser.parse_intermixed_args()
    build = words.build.resolve()
    programs = [path for path in sorted((build / "tests" / "fuzz").glob(PREFIX + "*"))
                if path.is_file() and (not words.names or path.name[len(PREFIX):] in words.names)]
    missing = set(words.names) - {path.name[len(PREFIX):] for path in programs}
    if missing or not programs:
        sys.exit(f"fuzz.py: no fuzzer {', '.join(sorted(missing))} in {build}")
    with concurrent.futures.ThreadPoolExecutor(words.jobs) as pool:
        results = list(pool.map(lambda program: fuzz(program, words.corpus.resolve(), build, words.seconds), programs))
    words.results.write_text(json.dumps(results), encoding="utf-8")
    return 0 if all(entry["result"] == "passed" for entry in results) else 1


if __name__ == "__main__":
    sys.exit(main())
