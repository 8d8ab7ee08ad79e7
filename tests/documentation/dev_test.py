#!/usr/bin/env python3
"""What ./dev asks the system to install: the packages a command needs, for the clang that is there, with progress."""
import os
import pathlib
import subprocess
import tempfile
import unittest

DEV = pathlib.Path(__file__).resolve().parents[2] / "dev"

APT_GET = """#!/bin/sh
echo "$@" >>"$LOG"
echo "2 upgraded, 2 newly installed, 0 to remove"
echo "Need to get 12.3 MB of archives."
echo "Get:1 http://deb.debian.org/debian bookworm/main amd64 first amd64 1.0 [12.3 MB]"
echo "Setting up first (1.0) ..."
echo "Setting up second (1.0) ..."
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


if __name__ == "__main__":
    unittest.main()
