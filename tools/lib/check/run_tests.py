#!/usr/bin/env python3
"""Runs suites of a build's tests and writes down what happened.

    run_tests.py BUILD_DIR RESULTS [--under COMMAND] [--unsteady FILE] MESON_TEST_OPTION...

RESULTS, a JSON file, gets a list of {"name", "result", "seconds", "reason"}: a test of GoogleTest counts by itself, any
other test as a whole, and what one of Python's unittest skips is an entry more. A program of GoogleTest or unittest that
runs no case fails. What failed is printed with its output, and its entry may have "said", the lines that tell why.

FILE lists the tests that the scheduler may make fail, each with its reason ("NAME  REASON" per line; NAME as printed
here). Those that fail are run once more, alone, when all others have ended, and so is a program whose cases had passed
when the leak sanitizer failed itself. One that passes then is "unsteady", which more than MOST_UNSTEADY tests may not be.
"""

import json
import os
import pathlib
import re
import shlex
import sys
import tempfile

import progress

MOST_UNSTEADY = 2
# A loaded host takes so many times as long as the tests' timeouts allow.
LOADED = 5
MOST_SAID = 15
_RESULTS = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped", "IGNORED": "skipped"}
# What unittest prints: "test_x (module.Class.test_x) ... skipped 'reason'", with a line of a doc string in between; then
# "Ran 3 tests in 1.2s", "OK (skipped=1)". Ranks of dunlin-run have "[RANK] " in front.
_TAG = r"^(?:\[\d+\] )?"
_SKIP = re.compile(_TAG + r"(\w+) \([^()\n]+\)(?:\n[^\n]*)? \.\.\. skipped (['\"])(.*)\2$", re.MULTILINE)
_RAN = re.compile(_TAG + r"Ran (\d+) tests? in ", re.MULTILINE)
_SKIPPED = re.compile(_TAG + r"(?:OK|FAILED) \((?:.*, )?skipped=(\d+)", re.MULTILINE)
# How the lines begin that tell why a program failed, those that tell most first: of a sanitizer, unittest, GoogleTest. In
# guests they are indented.
_SANITIZER, _UNITTEST, _GOOGLETEST = (re.compile(r"^ *(?:\[\d+\] )?" + begin, re.MULTILINE) for begin in (
    r"(?:==\d+==ERROR: |(?:WARNING|FATAL): ThreadSanitizer|\S+:\d+:\d+: runtime error: )", r"(?:FAIL|ERROR): ",
    r"(?:\S+:\d+|unknown file): Failure$"))
# What unittest prints above and below each failure.
_RULE = re.compile(r"^(?:\[\d+\] )?[=-]{70}$", re.MULTILINE)
# The sanitizer looks for leaks when all is over, and seldom (once in some hundred runs) crashes as it reads other threads.
_CRASHED_SANITIZER = "LeakSanitizer has encountered a fatal error"


def read_unsteady(path):
    """The names in the list."""
    if path is None:
        return set()
    lines = (line.split("#")[0].split() for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines())
    return {words[0] for words in lines if words}


def cases_of(folder, test):
    """The entries of what GoogleTest wrote of the test's cases."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            suites = json.loads(path.read_text(encoding="utf-8"))["testsuites"]
        except (ValueError, KeyError):
            continue  # of a program that was killed as it wrote: its exit code says so
        for suite in suites:
            for case in suite["testsuite"]:
                if case["status"] != "RUN":
                    continue
                seconds = float(case["time"].rstrip("s"))
                result = {"SKIPPED": "skipped"}.get(case["result"], "failed" if "failures" in case else "passed")
                reason = "".join(skip["message"] for skip in case.get("skipped", [])).strip().splitlines()[-1:]
                said = "\n".join(failure["failure"] for failure in case.get("failures", []))
                found.append({"name": f"{test}: {suite['name']}.{case['name']}", "result": result, "seconds": seconds,
                              "reason": " ".join(reason), **({"said": said.splitlines()[:MOST_SAID]} if said else {})})
    return found


def output_of(test):
    return test.get("stdout", "") + test.get("stderr", "")


def skips_of(test):
    """(whether unittest ran anything, the entries of what it skipped)."""
    text = output_of(test)
    ran = max(map(int, _RAN.findall(text)), default=None)
    if ran is None:
        return True, []
    skips = {name: reason for name, _, reason in _SKIP.findall(text)}  # of all ranks, once
    count = max(map(int, _SKIPPED.findall(text)), default=0)
    entries = [(f"{test['name']}: {name}", reason) for name, reason in skips.items()]
    if count > len(skips):
        entries.append((f"{test['name']}: {count - len(skips)} tests", "it doesn't say why"))
    return ran > count, [{"name": name, "result": "skipped", "seconds": 0, "reason": reason} for name, reason in entries]


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def why(text):
    """The lines of a failed program's output that tell most: those of a report, or the last ones."""
    match = _SANITIZER.search(text) or _UNITTEST.search(text) or _GOOGLETEST.search(text)
    if not match:
        return text.splitlines()[-MOST_SAID:]
    report = text[match.start():]
    if match.re is _UNITTEST:  # the exception stands at the end of the traceback
        head, _, block = report.partition("\n")
        block = _RULE.sub("", block, count=1)
        if end := _RULE.search(block):
            block = block[:end.start()]
        return [head, *block.strip("\n").splitlines()[1 - MOST_SAID:]]
    return report.splitlines()[:MOST_SAID]


def outcomes(test):
    """The entries that Meson's result of one test stands for."""
    def whole(result, reason=""):
        return {"name": test["name"], "result": result, "seconds": test["duration"], "reason": reason}

    result, output = _RESULTS.get(test["result"], "failed"), test.get("stdout", "")
    match = re.match(r"report: (.+)\n", output)
    folder = pathlib.Path(match.group(1)) if match else None
    entries = cases_of(folder, test["name"]) if folder else []
    if result == "failed":
        if not any(entry["result"] == "failed" for entry in entries):
            # It crashed, hung, or isn't GoogleTest's.
            said = output_of(test)[match.end() if match else 0:]
            entries.append({**whole("failed", test["result"].lower()), "said": why(said)})
        return entries
    if entries:
        return entries
    if result == "skipped":
        return [whole("skipped", last_line(output))]
    # It passes by its exit code. GoogleTest's and unittest's is 0 also when nothing was there to run.
    if folder and any(folder.glob("*.json")):
        return [whole("failed", "no case ran")]
    if re.search(r"^\[==========\] ", output, re.MULTILINE):
        return [whole("failed", "no report")]
    has_run, skips = skips_of(test)
    if has_run:
        return [whole("passed"), *skips]
    return skips or [whole("failed", "no case ran")]


def run_meson(build, under, options, alone=False):
    """[(Meson's result of a test, its entries)]; none when Meson itself failed, which is printed."""
    # Meson names its log by the wrapper.
    wrapper = pathlib.Path(__file__).with_name("with_report.sh")
    log = pathlib.Path(build, f"meson-logs/testlog-{wrapper.name}.json")
    log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [*under, "meson", "test", "-C", build, "--no-rebuild", "--wrapper", str(wrapper),
                   "--timeout-multiplier", str(LOADED), *options]
        environment = {"CONFORMANCE_TIMEOUT_FACTOR": str(LOADED), **os.environ, "TEST_REPORTS": folder}
        if alone:
            environment["TEST_ALONE"] = "1"
        code, lines, announced = progress.run(command, "tests", env=environment)
        if not log.is_file():
            print("\n".join(lines[-30:]), file=sys.stderr)
            return []
        tests = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        for test in tests:
            # "PROJECT:SUITE+SUITE / NAME"
            suites, _, test["name"] = test["name"].rpartition(" / ")
            test["suites"] = suites.partition(":")[2].split("+") if ":" in suites else []
        found = [(test, outcomes(test)) for test in tests]
        if reason := meson_failure(code, announced, found):
            meson = {"name": "meson test", "result": "ERROR", "stdout": "\n".join(lines[-30:]), "duration": 0,
                     "command": command, "suites": []}
            found.append((meson, [{"name": "meson test", "result": "failed", "seconds": 0, "reason": reason,
                                   "said": lines[-MOST_SAID:]}]))
        return found


def meson_failure(code, announced, found):
    """Why the tests that Meson wrote down aren't what there was to run; "" when they are."""
    if len(found) != announced:
        return f"{len(found)} of {announced} tests ran"
    if code != 0 and not any(entry["result"] == "failed" for _, entries in found for entry in entries):
        return f"exit code {code}, and no test failed"
    return ""


def print_failure(test):
    print(f"\n--- {test['name']} ({test['result'].lower()}, {test['duration']:.1f} s): {shlex.join(test['command'])}")
    print("\n".join(f"    {line}" for line in output_of(test).splitlines()[-120:]), flush=True)


def run_again(build, under, test, entry):
    """Whether the failed entry of Meson's test passes alone."""
    _, _, case = entry["name"].partition(": ")
    # Suites like `guest` run only when they are named.
    options = [f"--suite={suite}" for suite in test["suites"]]
    options += [f"--test-args=--gtest_filter={case}"] if case else []
    found = [again for _, entries in run_meson(build, under, [*options, test["name"]], alone=True) for again in entries]
    if any(again["result"] == "failed" for again in found):
        return False
    if not case:  # a program that had crashed: now it has entries of its cases
        return any(again["result"] == "passed" for again in found)
    return [again["result"] for again in found if again["name"] == entry["name"]] == ["passed"]


def is_sanitizers(test, entry):
    """Whether not a case of the test failed, but the leak sanitizer itself."""
    return entry["name"] == test["name"] and _CRASHED_SANITIZER in output_of(test)


def retry(build, under, tests, unsteady):
    """Runs what failed and is in the list once more; "passed" and "unsteady" are marked in the entries."""
    again = [(test, entry) for test, entries in tests for entry in entries
             if entry["result"] == "failed" and (entry["name"] in unsteady or is_sanitizers(test, entry))]
    passed = [entry for test, entry in again if run_again(build, under, test, entry)]
    for entry in passed:
        print(f"unsteady {entry['name']}", flush=True)
        if len(passed) <= MOST_UNSTEADY:
            entry["result"] = "passed"
    if len(passed) > MOST_UNSTEADY:
        print(f"   more than {MOST_UNSTEADY} tests are unsteady: they count as failed", flush=True)


def parse(arguments):
    build, results, *rest = arguments
    under, unsteady = [], None
    while rest and rest[0] in ("--under", "--unsteady"):
        if rest[0] == "--under":
            under = shlex.split(rest[1])
        else:
            unsteady = rest[1]
        rest = rest[2:]
    return build, results, under, unsteady, rest


def main():
    build, results, under, unsteady, options = parse(sys.argv[1:])
    tests = run_meson(build, under, options)
    if not tests:
        print("   no tests ran")
        return 1
    for test, entries in tests:
        if any(entry["result"] == "failed" for entry in entries):
            print_failure(test)
    entries = [entry for _, found in tests for entry in found]
    retry(build, under, tests, read_unsteady(unsteady))
    pathlib.Path(results).write_text(json.dumps(entries), encoding="utf-8")
    return 1 if any(entry["result"] == "failed" for entry in entries) else 0


if __name__ == "__main__":
    sys.exit(main())
