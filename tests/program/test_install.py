#!/usr/bin/env python3
"""The installed program, where the source tree and the build folder cannot be reached: an empty file system is mounted over
them. That needs root, or a system that grants a namespace of one's own; elsewhere this test is skipped.

    tests/program/test_install.py build/plimsoll
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from turns import eleventh

PROGRAM = ""
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIPPED = 77
HIDE = 'for folder in "$1" "$2"; do [ ! -d "$folder" ] || mount -t tmpfs none "$folder" || exit 99; done; shift 2; cd / && exec "$@"'
SWEEP = """format: plimsoll.experiment.v1
name: small
traces: [gpt12_w768_t256_b4_cpu]
platforms: [h200]
strategies: [store_all, chen_sqrt]
memory: [capacity]
engine: simgrid
"""


def hidden(words, **environment):
    """What words do where neither sources nor build folder can be seen."""
    unshare = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    build = os.path.dirname(os.path.abspath(PROGRAM))
    env = {**{k: v for k, v in os.environ.items() if k != "PLIMSOLL_DATA"}, **environment}
    return subprocess.run([*unshare, "sh", "-c", HIDE, "sh", build, SOURCE, *words], capture_output=True, text=True, env=env)


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.prefix = os.path.join(cls.folder.name, "prefix")
        subprocess.run(["cmake", "--install", os.path.dirname(os.path.abspath(PROGRAM)), "--prefix", cls.prefix], check=True,
                       capture_output=True)
        cls.program = os.path.join(cls.prefix, "bin", "plimsoll")
        cls.shipped = os.path.join(cls.prefix, "share", "plimsoll")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def answer(self, *words, **environment):
        run = hidden([self.program, *words], **environment)
        self.assertEqual((run.returncode, run.stderr), (0, ""), words)
        return run.stdout

    def built(self, *words):
        return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=True).stdout

    def test_the_sources_are_hidden(self):
        for path in (__file__, PROGRAM, os.path.join(SOURCE, "platforms")):
            self.assertNotEqual(hidden(["ls", os.path.abspath(path)]).returncode, 0, path)

    def test_names_and_version_are_those_of_the_build(self):
        for words in (("--version",), ("list", "traces", "--json"), ("list", "platforms", "--json"), ("describe", "h200")):
            self.assertEqual(self.answer(*words), self.built(*words))
        self.assertIn("h200", self.answer("list", "platforms"))

    def test_what_is_loaded_late_is_found(self):
        simgrid = self.answer("simulate", "--trace", "mlp:layers=2,width=8,batch=4,view=graph", "--platform", "ideal",
                              "--strategy", "store_all", "--engine", "simgrid", "--json")
        self.assertTrue(json.loads(simgrid)["feasible"])
        coin = self.answer("simulate", "--trace", "mlp:layers=2,width=8,batch=4,view=graph", "--platform", "ideal",
                           "--strategy", "checkmate", "--json")
        self.assertTrue(json.loads(coin)["feasible"])

    def test_a_sweep_and_its_report(self):
        experiment, out = os.path.join(self.folder.name, "small.yaml"), os.path.join(self.folder.name, "out")
        with open(experiment, "w") as file:
            file.write(SWEEP)
        run = hidden([self.program, "sweep", experiment, "-o", out])
        self.assertEqual(run.returncode, 0, run.stderr)
        run = hidden([self.program, "report", out, "-o", out])
        self.assertEqual(run.returncode, 0, run.stderr)
        with open(os.path.join(out, "report.html")) as page:
            self.assertIn("chen_sqrt", page.read())

    def test_manual_page_and_completion_are_the_programs(self):
        for words, file in ((("man",), "man/man1/plimsoll.1"), (("completion", "bash"), "bash-completion/completions/plimsoll")):
            with open(os.path.join(self.prefix, "share", file)) as text:
                self.assertEqual(text.read(), self.answer(*words))

    def test_scripts_come_along(self):
        for script in ("traces/export_pytorch.py", "traces/plimsoll/torch/stages.py", "experiments/plot.py", "experiments/plot_validation.py"):
            self.assertTrue(os.path.isfile(os.path.join(self.shipped, script)), script)

    def test_python_finds_the_package_and_all_that_it_loads(self):
        package = glob.glob(os.path.join(self.prefix, "lib/python3*/site-packages/plimsoll"))
        if not package or not glob.glob(os.path.join(package[0], "_core.*.so")):
            self.skipTest("the Python module was not built")
        code = ("import plimsoll; words = 'mlp:layers=2,width=8,batch=4,view=graph', 'ideal'\n"
                "for strategy in ('store_all', 'checkmate'): print(plimsoll.simulate(*words, strategy)['feasible'])")
        run = hidden(["/usr/bin/python3", "-c", code], PYTHONPATH=os.path.dirname(package[0]))
        self.assertEqual((run.returncode, run.stdout), (0, "True\nTrue\n"), run.stderr)

    @eleventh(6)
    @unittest.skipUnless(shutil.which("c++"), "no compiler: the core was not linked")
    def test_the_core_is_found_as_a_library(self):
        with open(os.path.join(SOURCE, "docs/how_to/library.md"), encoding="utf-8") as file:
            page = file.read()
        folder, out = os.path.join(self.folder.name, "example"), os.path.join(self.folder.name, "example/out")
        os.makedirs(folder)
        for name, language in (("CMakeLists.txt", "cmake"), ("main.cpp", "cpp")):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(re.search(rf"```{language}\n(.*?)```", page, re.S)[1])
        for words in (["cmake", "-B", out, "-S", folder, f"-DCMAKE_PREFIX_PATH={self.prefix}"], ["cmake", "--build", out]):
            made = hidden(words)
            self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        run = hidden([os.path.join(out, "example")])
        self.assertEqual((run.returncode, run.stdout), (0, re.search(r"```text\n(.*?)```", page, re.S)[1]), run.stderr)

    def test_shipped_files_name_schemas_that_come_along(self):
        for name in ("platforms/h200.yaml", "traces/data/vgg16_b8_cpu.json", "experiments/papers/zero.yaml"):
            file = os.path.join(self.shipped, name)
            with open(file, encoding="utf-8") as text:
                reference = re.search(r'\$schema(?:=|": ")([^"\n]+)', text.read(300))[1]
            self.assertTrue(os.path.isfile(os.path.join(os.path.dirname(file), reference)), (name, reference))

    def test_files_are_found_where_plimsoll_data_says(self):
        elsewhere = os.path.join(self.folder.name, "elsewhere")
        alone = os.path.join(self.folder.name, "alone")
        shutil.copytree(self.shipped, elsewhere)
        shutil.copy(self.program, alone)
        missing = hidden([alone, "describe", "h200"])
        self.assertEqual(missing.returncode, 2)
        self.assertIn("'h200'", missing.stderr)
        found = hidden([alone, "describe", "h200"], PLIMSOLL_DATA=elsewhere)
        self.assertEqual((found.returncode, found.stdout), (0, self.answer("describe", "h200")))


class Packed(unittest.TestCase):
    """The packages that ./dev package makes."""

    @eleventh(3)
    def test_the_bundle_needs_nothing_else(self):
        with tempfile.TemporaryDirectory() as folder:
            archive = os.path.join(folder, "plimsoll-9-any.tar.gz")
            subprocess.run([os.path.join(SOURCE, "cmake/bundle.sh"), os.path.dirname(PROGRAM), archive], check=True,
                           capture_output=True)
            subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)
            root = os.path.join(folder, "plimsoll-9-any")
            words = ["simulate", "-t", "mlp:layers=2,width=8,batch=4,view=graph", "-p", "h200", "--json"]
            started = hidden([os.path.join(root, "bin/plimsoll"), *words, "-s", "store_all"])
            self.assertEqual(started.returncode, 0, started.stderr)
            loader = next(name for name in os.listdir(os.path.join(root, "lib/plimsoll")) if name.startswith("ld-linux"))
            for strategy in ("store_all", "checkmate"):  # by SimGrid and COIN-OR, in a root that has these files only
                run = hidden(["chroot", root, f"/lib/plimsoll/{loader}", "--library-path", "/lib/plimsoll",
                              "/lib/plimsoll/plimsoll", *words, "-s", strategy, "--engine", "simgrid"],
                             PLIMSOLL_DATA="/share/plimsoll")
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertTrue(json.loads(run.stdout)["feasible"])

    @eleventh(4)
    @unittest.skipUnless(shutil.which("cpack") and shutil.which("dpkg-shlibdeps") and shutil.which("file"),
                         "no cpack, dpkg-shlibdeps (dpkg-dev) or file: the Debian package was not made")
    def test_the_debian_package_names_what_it_needs(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["cpack", "-G", "DEB", "-B", folder], cwd=os.path.dirname(PROGRAM), check=True, capture_output=True)
            package = next(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".deb"))
            fields = subprocess.run(["dpkg-deb", "-f", package, "Depends", "Package"], check=True, capture_output=True, text=True)
            for library in ("libsimgrid", "coinor-libcbc3", "libmetis", "libscotch", "libyaml-cpp", "libdnnl", "libfmt"):
                self.assertIn(library, fields.stdout)
            subprocess.run(["dpkg-deb", "-x", package, os.path.join(folder, "root")], check=True)
            run = hidden([os.path.join(folder, "root/usr/bin/plimsoll"), "describe", "h200"])
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertTrue(os.path.isfile(os.path.join(folder, "root/usr/lib/python3/dist-packages/plimsoll/answers.py")))


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    allowed = hidden(["true"])
    if allowed.returncode != 0:
        print(f"skipped: no mount namespace here: {allowed.stderr.strip()}")
        sys.exit(SKIPPED)
    unittest.main()
