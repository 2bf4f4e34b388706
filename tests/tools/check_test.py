#!/usr/bin/env python3
"""What tools/check is made of: results of tests, retries of unsteady ones, progress, what clang-tidy looks at, records."""

import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

CHECK = pathlib.Path(__file__).resolve().parents[2] / "tools/lib/check"
sys.path.insert(0, str(CHECK))
import lint  # noqa: E402
import progress  # noqa: E402
import record  # noqa: E402
import report  # noqa: E402
import run_tests  # noqa: E402

# As GoogleTest writes it.
GTEST = {"testsuites": [{"name": "Lane", "testsuite": [
    {"name": "Puts", "status": "RUN", "result": "COMPLETED", "time": "0.5s"},
    {"name": "Dies", "status": "RUN", "result": "COMPLETED", "time": "1s", "failures": [{"failure": "no"}]},
    {"name": "NeedsAGpu", "status": "RUN", "result": "SKIPPED", "time": "0s", "skipped": [{"message": "\nno GPU\n"}]},
    {"name": "OfAnotherShard", "status": "NOTRUN", "result": "SUPPRESSED", "time": "0s"}]}]}


VERBOSE = """test_a (__main__.A.test_a) ... ok
test_b (__main__.A.test_b)
What it is for. ... skipped "can't: no mpirun"
test_c (__main__.A.test_c) ... skipped 'no GPU'

----------------------------------------------------------------------
Ran 3 tests in 0.5s

OK (skipped=2)
"""


def meson(name, result, stdout="", duration=2.0, suites=()):
    return {"name": name, "result": result, "stdout": stdout, "duration": duration, "command": [name], "suites": suites}


def entry(name, result, reason="", seconds=1):
    return {"name": name, "result": result, "seconds": seconds, "reason": reason}


def quietly(function, *arguments):
    """Its result and what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        return function(*arguments), out.getvalue()


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class ResultsTest(Folder):
    def test_cases_of_googletest_count_by_themselves(self):
        (self.folder / "test_lane.json").write_text(json.dumps(GTEST))
        entries = run_tests.outcomes(meson("lanes", "FAIL", f"report: {self.folder}\nRunning ...\n"))
        self.assertEqual([(entry["name"], entry["result"], entry["reason"]) for entry in entries],
                         [("lanes: Lane.Puts", "passed", ""), ("lanes: Lane.Dies", "failed", ""),
                          ("lanes: Lane.NeedsAGpu", "skipped", "no GPU")])

    def test_a_program_that_crashed_is_a_failure_although_no_case_is(self):
        entries = run_tests.outcomes(meson("lanes", "TIMEOUT", f"report: {self.folder}\n"))
        self.assertEqual([(entry["name"], entry["result"], entry["reason"]) for entry in entries],
                         [("lanes", "failed", "timeout")])

    def said(self, output):
        return run_tests.outcomes(meson("t", "FAIL", f"report: {self.folder}\n{output}"))[-1]["said"]

    def test_a_failure_is_told_by_its_report(self):
        leak = "==7==ERROR: LeakSanitizer: detected memory leaks\n"
        for report in (leak, "a.cc:7: Failure\n", "a.cc:7:3: runtime error: overflow\n", "WARNING: ThreadSanitizer: x\n",
                       "    a.cc:7: Failure\n", "unknown file: Failure\n"):
            self.assertEqual(self.said(f"[  PASSED  ] 3 tests.\n{report}of 8 bytes\nlast\n"),
                             [report.rstrip(), "of 8 bytes", "last"])
        self.assertEqual(self.said(f"a.cc:7: Failure\n{leak}last\n"), [leak.rstrip(), "last"], "it tells more")
        lines = [f"line {i}" for i in range(50)]
        self.assertEqual(self.said(leak + "\n".join(lines)), [leak.rstrip(), *lines[:run_tests.MOST_SAID - 1]])

    def test_a_failure_of_unittest_is_told_with_the_end_of_its_traceback(self):
        head, rule = "[3] FAIL: test_a (a.A.test_a)", "-" * 70
        frames = [f"[3]   frame {i}" for i in range(30)]
        text = "\n".join(["=" * 70, head, f"[3] {rule}", *frames, "[3] AssertionError: 1 != 2", "", rule, "Ran 2 tests"])
        said = self.said(text + "\n")
        self.assertEqual((said[0], said[1], said[-1], len(said)),
                         (head, frames[-13], "[3] AssertionError: 1 != 2", run_tests.MOST_SAID))

    def test_without_such_a_report_the_last_lines_tell_it(self):
        lines = [f"line {i}" for i in range(50)]
        self.assertEqual(self.said("\n".join(lines)), lines[-run_tests.MOST_SAID:])

    def test_a_failed_case_is_told_by_its_own_failures(self):
        (self.folder / "test_lane.json").write_text(json.dumps(GTEST))
        entries = run_tests.outcomes(meson("lanes", "FAIL", f"report: {self.folder}\nb.cc:9: Failure\n"))
        self.assertEqual([entry.get("said") for entry in entries], [None, ["no"], None])

    def test_other_tests_count_as_a_whole(self):
        self.assertEqual(run_tests.outcomes(meson("job", "SKIP", f"report: {self.folder}\nskipped: no mpirun\n"))[0],
                         {"name": "job", "result": "skipped", "seconds": 2.0, "reason": "skipped: no mpirun"})

    def outcome(self, result, output):
        return [(entry["name"], entry["result"], entry["reason"])
                for entry in run_tests.outcomes(meson("t", result, f"report: {self.folder}\n{output}"))]

    def test_a_program_of_googletest_that_runs_no_case_fails(self):
        started = "Running main() from gtest_main.cc\n[==========] Running 0 tests from 0 test suites.\n"
        self.assertEqual(self.outcome("OK", started), [("t", "failed", "no report")])
        for suites in ([], [{"name": "Lane", "testsuite": [GTEST["testsuites"][0]["testsuite"][3]]}]):
            (self.folder / "test_lane.json").write_text(json.dumps({"testsuites": suites}))
            self.assertEqual(self.outcome("OK", started), [("t", "failed", "no case ran")])
        # In a guest, the report stays there, and verbs.sh looks at the number of cases.
        (self.folder / "test_lane.json").unlink()
        self.assertEqual(self.outcome("OK", "    [==========] Running 3 tests.\n"), [("t", "passed", "")])

    def test_what_unittest_skips_is_named(self):
        skips = [("t: test_b", "skipped", "can't: no mpirun"), ("t: test_c", "skipped", "no GPU")]
        self.assertEqual(self.outcome("OK", VERBOSE), [("t", "passed", ""), *skips])
        tagged = "".join(f"[{rank}] {line}\n" for line in VERBOSE.splitlines() for rank in (0, 1))
        self.assertEqual(self.outcome("OK", tagged)[::2], [("t", "passed", ""), skips[1]])
        self.assertEqual(self.outcome("FAIL", VERBOSE), [("t", "failed", "fail")])
        self.assertEqual(self.outcome("OK", "s.\nRan 2 tests in 0.1s\n\nOK (skipped=1)\n"),
                         [("t", "passed", ""), ("t: 1 tests", "skipped", "it doesn't say why")])

    def test_a_program_of_unittest_that_runs_no_test_does_not_pass(self):
        self.assertEqual(self.outcome("OK", "Ran 0 tests in 0.1s\n\nOK\n"), [("t", "failed", "no case ran")])
        all_skipped = "test_a (__main__.A.test_a) ... skipped 'no root'\nRan 1 test in 0.1s\n\nOK (skipped=1)\n"
        self.assertEqual(self.outcome("OK", all_skipped), [("t: test_a", "skipped", "no root")])

    def report(self, *arguments):
        with mock.patch.object(sys, "argv", ["report.py", *map(str, arguments)]):
            return quietly(report.main)

    def test_counts_and_exit_code(self):
        results = self.folder / "results.json"
        results.write_text(json.dumps([entry("a", "passed"), entry("b", "failed", "late")]))
        for arguments, code, text in ((["--counts", results], 0, "1 passed, 1 failed, 0 skipped"),
                                      ([self.folder, "0", results], 1, f"FAILED: b ({self.folder.name}): late")):
            found, said = self.report(*arguments)
            self.assertEqual(found, code)
            self.assertIn(text, said)

    def test_what_failed_stands_last(self):
        results = self.folder / "results.json"
        failed = {**entry("b", "failed", "fail"), "said": ["==7==ERROR", "  #0 main"]}
        results.write_text(json.dumps([failed, entry("a", "skipped", "no GPU"), entry("c", "passed")]))
        _, said = self.report(self.folder, "0", results)
        failure = f"   FAILED: b ({self.folder.name}): fail\n      ==7==ERROR\n        #0 main\n"
        self.assertTrue(said.endswith(f"== what failed\n{failure}"), said)

    def test_empty_results_are_a_failure(self):
        good, empty = self.folder / "good.json", self.folder / "tests-asan.json"
        good.write_text(json.dumps([entry("a", "passed")]))
        empty.write_text("[]")
        code, said = self.report(self.folder, "0", good, empty)
        self.assertEqual(code, 1)
        self.assertIn(f"FAILED: tests-asan ({self.folder.name}): its results are empty", said)


class MesonTest(Folder):
    """run_tests.py with a Meson that writes a log and says how many tests there are."""

    def setUp(self):
        super().setUp()
        (self.folder / "meson-logs").mkdir()
        program = self.folder / "meson"
        program.write_text(f"""#!/bin/sh
cd {self.folder}
echo "$TEST_ALONE $*" >arguments
cat lines >meson-logs/testlog-with_report.sh.json
cat said
exit $(cat code)
""")
        program.chmod(0o755)
        path = mock.patch.dict(os.environ, PATH=f"{self.folder}:{os.environ['PATH']}")
        path.start()
        self.addCleanup(path.stop)

    def run_meson(self, tests, total, code=0, **options):
        (self.folder / "lines").write_text("".join(json.dumps(test) + "\n" for test in tests))
        (self.folder / "said").write_text("".join(f" {done}/{total} t OK 1s\n" for done in range(1, len(tests) + 1)))
        (self.folder / "code").write_text(str(code))
        found, _ = quietly(lambda: run_tests.run_meson(str(self.folder), [], ["--suite=unit"], **options))
        return found

    def entries(self, *arguments):
        return [(entry["name"], entry["result"], entry["reason"])
                for _, entries in self.run_meson(*arguments) for entry in entries]

    def test_suites_are_those_of_the_name(self):
        (test, _), = self.run_meson([meson("dunlin:unit+slow / lanes", "OK")], 1)
        self.assertEqual((test["name"], test["suites"]), ("lanes", ["unit", "slow"]))

    def test_an_exit_code_without_a_failed_test_is_a_failure(self):
        tests = [meson("dunlin:unit / lanes", "OK")]
        self.assertEqual(self.entries(tests, 1), [("lanes", "passed", "")])
        self.assertEqual(self.entries(tests, 1, 1)[1:], [("meson test", "failed", "exit code 1, and no test failed")])
        self.assertEqual(len(self.entries([meson("dunlin:unit / lanes", "FAIL")], 1, 1)), 1)

    def test_tests_that_did_not_run_are_a_failure(self):
        tests = [meson("dunlin:unit / lanes", "OK")]
        self.assertEqual(self.entries(tests, 3)[1:], [("meson test", "failed", "1 of 3 tests ran")])

    def run_again(self, case, cases, *more):
        """Whether the failed case of the test `lanes` passes when the run alone reports these cases."""
        (self.folder / "test_lane.json").write_text(json.dumps({"testsuites": [{"name": "Lane", "testsuite": cases}]}))
        tests = [meson("dunlin:guest / lanes", "OK", f"report: {self.folder}\n"), *more]
        (self.folder / "lines").write_text("".join(json.dumps(test) + "\n" for test in tests))
        (self.folder / "said").write_text(" 1/1 lanes OK 1s\n")
        (self.folder / "code").write_text("0")
        test = meson("lanes", "FAIL", suites=["guest", "slow"])
        return quietly(run_tests.run_again, str(self.folder), [], test, entry(case, "failed"))[0]

    def test_a_case_runs_again_alone_by_its_name_and_suites(self):
        puts, dies, skipped, _ = GTEST["testsuites"][0]["testsuite"]
        self.assertTrue(self.run_again("lanes: Lane.Puts", [puts]))
        arguments = (self.folder / "arguments").read_text()
        self.assertTrue(arguments.startswith("1 test -C "), arguments)
        self.assertTrue(arguments.endswith("--suite=guest --suite=slow --test-args=--gtest_filter=Lane.Puts lanes\n"), arguments)
        for cases in ([], [dies], [skipped], [puts, puts], [puts, dies]):
            self.assertFalse(self.run_again("lanes: Lane.Puts", cases), cases)
        self.assertFalse(self.run_again("lanes: Lane.Gets", [puts]))

    def test_a_program_that_crashed_runs_again_whole(self):
        puts, dies, skipped, _ = GTEST["testsuites"][0]["testsuite"]
        for cases, passes in (([puts], True), ([puts, skipped], True), ([puts, dies], False), ([skipped], False)):
            self.assertEqual(self.run_again("lanes", cases), passes, cases)
        self.assertNotIn("gtest_filter", (self.folder / "arguments").read_text())

    def test_a_run_alone_has_no_shards(self):
        shards = {"GTEST_TOTAL_SHARDS": "4", "GTEST_SHARD_INDEX": "1", "TEST_REPORTS": str(self.folder)}
        for alone, left in (({"TEST_ALONE": ""}, "41"), ({"TEST_ALONE": "1"}, "")):
            done = subprocess.run([CHECK / "with_report.sh", "sh", "-c", 'echo "$GTEST_TOTAL_SHARDS$GTEST_SHARD_INDEX"'],
                                  capture_output=True, text=True, check=True, env={**os.environ, **shards, **alone})
            self.assertEqual(done.stdout.splitlines()[1], left)


class RecordTest(Folder):
    def record(self, commit, **parts):
        """Records the parts' entries; (what was said, the file's text)."""
        results = self.folder / f"results-{commit}"
        for part, entries in parts.items():
            (results / part).mkdir(parents=True)
            (results / part / "tests.json").write_text(json.dumps(entries))
            (results / part / "seconds").write_text("120")
        (self.folder / "tests").mkdir(exist_ok=True)
        with mock.patch.object(sys, "argv", ["record.py", str(self.folder), commit, str(results)]):
            code, said = quietly(record.main)
        self.assertEqual(code, 0)
        return said, (self.folder / record.FILE).read_text(encoding="utf-8")

    def test_names_the_commit_the_figures_and_what_was_skipped(self):
        _, text = self.record("c0ffee", tests=[entry("a", "passed"), entry("job: test_gpu", "skipped", "no GPU")])
        self.assertRegex(text, r"\n\| tests \| [0-9-]+ \| c0ffee \| 2 \| 1 \| 1 \| ")
        self.assertIn("\n- tests: job: test_gpu: no GPU\n", text)

    def test_what_it_says_of_other_parts_stays(self):
        self.record("c0ffee", tests=[entry("a", "passed")], lint=[entry("b", "passed"), entry("c", "skipped", "no c")])
        _, text = self.record("beef", tests=[entry("a", "passed")])
        self.assertRegex(text, r"\n\| lint \| [0-9-]+ \| c0ffee \| .*\n\| tests \| [0-9-]+ \| beef \| ")
        self.assertEqual(text.count("| tests |"), 1)
        self.assertIn("\n- lint: c: no c\n", text)

    def test_guests_are_not_recorded_when_one_was_skipped(self):
        said, text = self.record("c0ffee", guests=[entry("a", "passed"), entry("verbs", "skipped", "no QEMU")])
        self.assertIn("verbs skipped", said)
        self.assertNotIn("| guests |", text)


class RememberTest(Folder):
    """The functions of tools/check that note what has passed, in a repository of one commit."""

    def setUp(self):
        super().setUp()
        program = (CHECK.parents[1] / "check").read_text(encoding="utf-8")
        functions = [re.search(rf"^{name}\(\) {{\n.*?^}}$", program, re.MULTILINE | re.DOTALL).group()
                     for name in ("state", "remember", "record")]
        self.script = "\n".join(["set -uo pipefail", f"root={self.folder} checks={CHECK} mode=default has_linted=yes",
                                 "results=$root/results passed_file=$root/results/passed",
                                 'say() { echo "$*"; }', *functions, "cd $root", "state_before=$(state)"])
        (self.folder / "results").mkdir()
        self.run_script("git init -q && echo /results >.gitignore && git add . && git commit -qm first")

    def run_script(self, text):
        names = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        names["GIT_CONFIG_GLOBAL"] = os.devnull
        done = subprocess.run(["bash", "-c", f"{self.script}\n{text}"], capture_output=True, text=True,
                              env={**os.environ, **names}, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def remembered(self, text):
        passed = self.folder / "results/passed"
        passed.unlink(missing_ok=True)
        self.run_script(text)
        return passed.read_text().strip() if passed.exists() else None

    def test_a_clean_commit_that_was_linted_is_remembered(self):
        commit = self.run_script("git rev-parse HEAD").strip()
        self.assertEqual(self.remembered("remember"), commit)
        self.assertIsNone(self.remembered("has_linted=no; remember"))

    def test_a_tree_that_differs_or_moves_is_not(self):
        self.assertIsNone(self.remembered("touch new; remember"))
        self.assertIsNone(self.remembered("remember"))
        self.assertIsNone(self.remembered("rm new; state_before=$(state); git commit -q --allow-empty -m second; remember"))

    def test_names_and_reasons_are_escaped(self):
        self.run_script("""record 'the "name"' failed 3 'back\\slash'""")
        path, = (self.folder / "results").glob("*.json")
        self.assertEqual(json.loads(path.read_text()), [entry('the "name"', "failed", "back\\slash", 3)])


class PartsTest(unittest.TestCase):
    """The parts of tools/check: which ones its options choose, and where their results go."""

    def check(self, *options):
        return subprocess.run([CHECK.parents[1] / "check", *options], capture_output=True, text=True, check=False)

    def test_unknown_parts_and_two_sizes_are_errors(self):
        for options, said in ((["--part", "all"], "--part needs one of: tests lint guests address threads fuzzers"),
                              (["--part"], "--part needs one of"),
                              (["--quick", "--part", "lint"], "--part excludes --quick and --all")):
            done = self.check(*options)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr)

    def test_each_part_has_a_folder_with_its_time(self):
        program = (CHECK.parents[1] / "check").read_text(encoding="utf-8")
        function = re.search(r"^begin_part\(\) {\n.*?^}$", program, re.MULTILINE | re.DOTALL).group()
        with tempfile.TemporaryDirectory() as folder:
            script = f"""all_results={folder}; results=$all_results; parts=(lint threads); part_began=0
{function}
begin_part tests && echo tests >&2
begin_part lint && SECONDS=7
begin_part guests && echo guests >&2
begin_part threads && echo "$results"
begin_part
echo "$results"
"""
            done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
            self.assertEqual(done.stderr, "")
            self.assertEqual(done.stdout.split(), [f"{folder}/threads", folder])
            seconds = {path.parent.name: path.read_text().strip() for path in pathlib.Path(folder).glob("*/seconds")}
            self.assertEqual(seconds, {"lint": "7", "threads": "0"})


class UnsteadyTest(Folder):
    """Tests a, b, ... have failed; all pass when they run alone."""

    def retry(self, names, unsteady):
        entries = [entry(name, "failed") for name in names]
        with mock.patch.object(run_tests, "run_again", lambda *_: True):
            _, said = quietly(run_tests.retry, "build", [], [(meson("t", "FAIL"), entries)], unsteady)
        return "".join(entry["result"][0] for entry in entries), said

    def test_listed_ones_that_pass_alone_are_named_and_pass(self):
        results, said = self.retry("abc", {"a", "b"})
        self.assertEqual(results, "ppf")
        self.assertIn("unsteady a\nunsteady b\n", said)

    def test_more_than_two_fail_the_check(self):
        self.assertEqual(self.retry("abc", {"a", "b", "c"})[0][-1], "f")

    def test_a_crash_of_the_leak_sanitizer_is_no_failure_of_the_test(self):
        crash = "==7==LeakSanitizer has encountered a fatal error.\n"
        for output, name, result in ((crash, "t", "passed"), (crash, "t: A.B", "failed"), ("a leak\n", "t", "failed")):
            entries = [entry(name, "failed")]
            with mock.patch.object(run_tests, "run_again", lambda *_: True):
                quietly(run_tests.retry, "build", [], [(meson("t", "FAIL", output), entries)], set())
            self.assertEqual(entries[0]["result"], result, (output, name))

    def test_the_list_is_short_and_gives_reasons(self):
        path = CHECK.parents[2] / "tests/unsteady.txt"
        names = run_tests.read_unsteady(path)
        self.assertLessEqual(len(names), 10)
        for line in path.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                self.assertGreater(len(line.split()), 4, f"{line}: give a reason")


class ProgressTest(unittest.TestCase):
    def test_lines_of_ninja_and_meson_are_progress_and_others_are_kept(self):
        for line, done in (("[12/345] Compiling a.cc", "12 of 345"), (" 7/20 lanes  OK  1.2s", "7 of 20")):
            out = io.StringIO()
            with mock.patch.object(progress, "INTERVAL", 0.01), mock.patch.object(sys, "stdout", out), \
                    mock.patch.object(progress.Ticker.__init__, "__defaults__", (out, lambda: 0)):
                found = progress.run(["sh", "-c", f"echo '{line}'; echo 'a.cc:1: error'; sleep 0.5"], "files")
            self.assertEqual(found, (0, ["a.cc:1: error"], int(done.split()[-1])))
            self.assertIn(f"{done} files, 0:00\n", out.getvalue())


class LintTest(Folder):
    def test_a_source_is_looked_at_when_it_or_its_header_changed(self):
        sources = ["runtime/a.cc", "runtime/b.cc", "runtime/c.cc"]
        self.assertEqual(lint.chosen(sources, {"runtime/a.cc", "runtime/b.h", "README.md"}), sources[:2])

    def test_precompiled_headers_are_left_out(self):
        command = "c++ -Ia.p -Wall -Winvalid-pch -fpch-preprocess -include library.h -c a.cc"
        self.assertEqual(lint.without_precompiled(command), "c++ -Ia.p -Wall -c a.cc")

    def test_what_passed_is_looked_at_again_when_something_changes(self):
        for path, text in ((".clang-tidy", "Checks: '*'"), ("runtime/a.cc", '#include "runtime/a.h"\n#include <dunlin/d.h>\n'),
                           ("runtime/a.h", '#include "b.h"\n'), ("runtime/b.h", "int b;\n"),
                           ("bindings/cpp/dunlin/d.h", "int d;\n")):
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(text)

        def fingerprint(path="runtime/a.cc", command=f"c++ -I{self.folder}/x -c a.cc", version="14.0.6"):
            return lint.fingerprint(self.folder, path, command, version)

        seen = {fingerprint()}
        self.assertEqual(seen, {fingerprint(command="c++ -I/x -c a.cc")})  # in whatever clone
        for path in (".clang-tidy", "runtime/a.cc", "runtime/a.h", "runtime/b.h", "bindings/cpp/dunlin/d.h"):
            with (self.folder / path).open("a") as file:
                file.write("\n")
            seen.add(fingerprint())
        seen |= {fingerprint(command="c++ -DX -c a.cc"), fingerprint(version="15.0.0"), fingerprint("runtime/b.cc")}
        self.assertEqual(len(seen), 9)

    def test_a_build_without_sources_is_a_failure(self):
        (self.folder / "compile_commands.json").write_text("[]")
        arguments = ["lint.py", str(self.folder), str(self.folder), str(self.folder / "results.json"), "--all"]
        with mock.patch.object(sys, "argv", arguments):
            code, said = quietly(lint.main)
        self.assertEqual(code, 1)
        self.assertIn("compiles none of the sources", said)
        self.assertFalse((self.folder / "results.json").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
