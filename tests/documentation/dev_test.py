#!/usr/bin/env python3
"""What ./dev asks the system to install, with progress: the packages a command needs, for the clang that is there. How ./dev test
ends: with what was left out and why, and with the exit code of what failed."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEV = ROOT / "dev"

APT_GET = """#!/bin/sh
echo "$@" >>"$LOG"
echo "2 upgraded, 2 newly installed, 0 to remove"
echo "Need to get 12.3 MB of archives."
echo "Get:1 http://deb.debian.org/debian bookworm/main amd64 first amd64 1.0 [12.3 MB]"
echo "Setting up first (1.0) ..."
echo "Setting up second (1.0) ..."
"""

CTEST = """#!/bin/sh
mkdir -p build-whole/Testing/Temporary
cat >build-whole/Testing/Temporary/LastTest.log <<TXT
1/3 Testing: first
skipped, nothing was tested: no GPU (none)
2/3 Testing: second
test_a (T) ... skipped "no 'browser'"
0.700 s: a case
3/3 Testing: exporter
test_a (T.test_a)
A sentence. ... skipped 'no torch'
test_b (T.test_b) ... a line of its ownskipped 'no torch'
TXT
echo '<testsuite><testcase name="first" time="0.5"/><testcase name="second" time="12"/></testsuite>' >build-whole/Testing/durations.xml
exit $CTEST_ENDS
"""


class Dev(unittest.TestCase):
    def run_dev(self, command, clang="14.0.6", known=True):
        """Runs it on a made-up machine on which nothing is installed and nothing compiles."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "dev").write_bytes(DEV.read_bytes())
            stubs = {"apt-get": APT_GET, "dpkg-query": "#!/bin/sh\nexit 1\n", "git": "#!/bin/sh\n", "cmake": "#!/bin/sh\nexit 1\n",
                     "apt-cache": "#!/bin/sh\n" + ("echo known\n" if known else ""), "sudo": '#!/bin/sh\nexec "$@"\n',
                     "clang-format": "#!/bin/sh\n", "clang": f"#!/bin/sh\necho 'Debian clang version {clang}'\n"}
            (root / "bin").mkdir()
            for name, text in stubs.items():
                (root / "bin" / name).write_text(text)
                (root / "bin" / name).chmod(0o755)
            environment = {**os.environ, "PATH": f"{root}/bin:/usr/bin:/bin", "LOG": f"{root}/log"}
            run = subprocess.run(["bash", root / "dev", command], env=environment, capture_output=True, text=True)
            asked = (root / "log").read_text() if (root / "log").exists() else ""
            return asked, run

    def test_format_needs_clang_format_only(self):
        asked, run = self.run_dev("format")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual([line.split()[-1] for line in asked.splitlines() if line.startswith("install")], ["clang-format"])

    def test_site_needs_mkdocs_and_schemas_their_reader(self):
        self.assertIn(" mkdocs mkdocs-material ", self.run_dev("site")[0])
        self.assertIn(" python3-jsonschema python3-yaml ", self.run_dev("test")[0])

    def test_lint_asks_for_the_runtime_of_the_clang_that_is_there(self):
        for version in ("14", "19"):
            asked, _ = self.run_dev("lint", clang=version + ".1.7 (3)")
            self.assertIn(f"libclang-rt-{version}-dev", asked)
            self.assertEqual(asked.count("libclang-rt-"), 1)

    def test_lint_asks_for_no_package_that_the_system_does_not_have(self):
        asked, _ = self.run_dev("lint", clang="10.0.0", known=False)
        self.assertNotIn("libclang-rt-", asked)

    def test_installing_shows_how_far_it_is(self):
        _, run = self.run_dev("format")
        for line in ("  Need to get 12.3 MB of archives.", "  1 of 2: first", "  2 of 2: second"):
            self.assertIn(line, run.stderr.splitlines())
        self.assertTrue(any(line.startswith("  fetching first") for line in run.stderr.splitlines()), run.stderr)


class Subjects(unittest.TestCase):
    def check(self, *subjects, since=None):
        """What subjects.py says of a repository with these commits."""
        with tempfile.TemporaryDirectory() as folder:
            def git(*words):
                return subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@b", *words], cwd=folder, capture_output=True, text=True,
                                      check=True).stdout.strip()
            git("init", "-q")
            names = []
            for subject in subjects:
                git("commit", "-q", "--allow-empty", "-m", subject, "-m", "A body may have lines of any length: " + 99 * "x")
                names.append(git("rev-parse", "HEAD"))
            command = [sys.executable, ROOT / "tests/documentation/subjects.py", names[0] if since is None else since]
            run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            return run.returncode, re.sub(r"\b[0-9a-f]{7,}\b", "NAME", run.stderr)

    def test_a_subject_has_at_most_72_characters(self):
        said = f"subjects of commits have at most 72 characters:\nNAME: 73 characters: {73 * 'z'}\n"
        self.assertEqual(self.check("a", 72 * "y"), (0, ""))
        self.assertEqual(self.check("a", 73 * "z", "d"), (1, said))

    def test_older_ones_stay_as_they_are_where_their_history_is_there(self):
        self.assertEqual(self.check(99 * "a", "b"), (0, ""))
        self.assertEqual(self.check(99 * "a", "b", since=40 * "0")[0], 1)

    def test_lint_asks(self):
        self.assertIn("tests/documentation/subjects.py", DEV.read_text().split("command_lint()")[1].split("\n}\n")[0])


class Test(unittest.TestCase):
    def run_test(self, *options, ctest=0, then=None):
        """`./dev test` on a made-up machine on which everything compiles: what was asked of apt-get, and the run, or that of
        the command that is given then."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            scripts = {f"tests/program/{name}": (ROOT / "tests/program" / name).read_text() for name in ("left_out.py", "slow.py")}
            files = {"dev": DEV.read_text(), **scripts,
                     "bin/apt-get": APT_GET, "bin/dpkg-query": "#!/bin/sh\nexit 1\n", "bin/sudo": '#!/bin/sh\nexec "$@"\n',
                     "bin/cmake": '#!/bin/sh\necho "$@" >>"$LOG"\n', "bin/ctest": CTEST}
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
                (root / name).chmod(0o755)
            environment = {**os.environ, "PATH": f"{root}/bin:/usr/bin:/bin", "LOG": f"{root}/log", "CTEST_ENDS": str(ctest)}
            environment.pop("PLIMSOLL_TESTS", None)
            environment.pop("PLIMSOLL_TURN", None)
            for command in [["test", *options]] + ([[then]] if then else []):
                run = subprocess.run(["bash", root / "dev", *command], env=environment, capture_output=True, text=True)
            return (root / "log").read_text(), run

    def test_it_ends_with_what_was_left_out_and_why(self):
        _, run = self.run_test()
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout.splitlines()[:3],
                         ["  exporter: 2 tests, no torch", "  first: no GPU (none)", "  second: 1 test, no 'browser'"])

    def test_the_turn_of_the_long_tests_is_the_commits(self):
        _, run = self.run_test()  # without a history it is the first
        self.assertIn("this was PLIMSOLL_TURN=0 of 0 to 32", run.stdout)
        choose = re.search(r"export (PLIMSOLL_TURN=.*)", DEV.read_text())[1]
        with tempfile.TemporaryDirectory() as folder:
            git = pathlib.Path(folder) / "git"
            for name, turn in (("0000000", 0), ("000002f", 14), ("c4eba03", int("c4eba03", 16) % 33)):
                git.write_text(f"#!/bin/sh\necho {name}\n")
                git.chmod(0o755)
                said = subprocess.run(["bash", "-c", f"{choose}; echo $PLIMSOLL_TURN"], env={**os.environ, "PATH": f"{folder}:/usr/bin:/bin"},
                                      capture_output=True, text=True)
                self.assertEqual(said.stdout, f"{turn}\n")

    def test_its_exit_code_is_that_of_what_failed(self):
        _, run = self.run_test(ctest=8)
        self.assertEqual(run.returncode, 8)
        self.assertNotIn("left out", run.stderr)

    def test_it_says_how_long_each_test_took(self):
        _, run = self.run_test(then="slow")
        self.assertEqual(run.stdout.splitlines(),
                         ["programs, 12.5 s together:", "     12.0 s  second", "      0.5 s  first",
                          "cases of half a second and more, 0.7 s together:", "      0.7 s  second: a case"])
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "dev").write_bytes(DEV.read_bytes())
            none = subprocess.run(["bash", f"{folder}/dev", "slow"], capture_output=True, text=True)
        self.assertEqual((none.returncode, none.stderr), (1, "./dev slow: no durations yet: ./dev test records them\n"))

    def test_nothing_is_said_where_nobody_reads_on(self):
        with tempfile.TemporaryDirectory() as folder:
            durations, log = (pathlib.Path(folder) / "Testing" / name for name in ("durations.xml", "Temporary/LastTest.log"))
            log.parent.mkdir(parents=True)
            durations.write_text('<suite><testcase name="first" time="0.5"/></suite>')
            log.write_text("")
            for command in (["slow.py", folder], ["left_out.py", log]):
                read, write = os.pipe()
                os.close(read)
                run = subprocess.run([sys.executable, ROOT / "tests/program" / command[0], *command[1:]], stdout=write, stderr=subprocess.PIPE, text=True)
                os.close(write)
                self.assertEqual(run.stderr, "")

    def test_it_installs_what_it_tests_or_leaves_it_out_by_an_option(self):
        asked, _ = self.run_test()
        for package in ("python3-torch", "python3-torchvision", "python3-sklearn"):
            self.assertIn(f" {package}", asked)
        asked, _ = self.run_test("--without-pytorch")
        self.assertNotIn("torch", asked)
        self.assertNotIn("sklearn", asked)
        self.assertIn("catch2", asked)

    def test_warnings_are_errors_only_where_that_is_asked(self):
        self.assertNotIn("WERROR", self.run_test()[0])
        asked, _ = self.run_test("--strict")
        self.assertEqual([line for line in asked.splitlines() if line.startswith("--preset")],
                         ["--preset whole -DPLIMSOLL_WERROR=ON"])
        self.assertEqual((ROOT / ".ci/run").read_text().splitlines()[-1], "./dev test --strict")

    def test_an_option_that_it_does_not_have_is_refused(self):
        run = subprocess.run(["bash", DEV, "test", "--al"], capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stderr), (2, "./dev test: unknown option '--al'\n"))


if __name__ == "__main__":
    unittest.main()
