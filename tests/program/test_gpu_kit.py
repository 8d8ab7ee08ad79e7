#!/usr/bin/env python3
"""run.sh --minutes of ./dev pack-gpu on a made-up machine: its programs leave results and move a clock, `timeout` ends them by it. So
order, limits and what a cut leaves are seen in a moment. The programs stand in for test_cuda, plimsoll, and Python with PyTorch."""
import os
import pathlib
import re
import subprocess
import tarfile
import tempfile
import unittest

RUN = pathlib.Path(__file__).resolve().parents[2] / "validate" / "gpu_pack" / "run.sh"

# Takes what the list says of it, or 1 s; a program that takes longer than it may is ended as timeout does it.
TIMEOUT = """#!/bin/bash
limit=$5 name=
shift 5
for word in "$@"; do
  case $word in
    *test_cuda | calibrate | validate | *gpu_models.py:* | *measure_training.py | *measure_kernels.py | memcheck) name=${word##*[/:]} ;;
  esac
done
[ "$1" != compute-sanitizer ] || name=memcheck
began=$(cat "$KIT_CLOCK")
seconds=$(sed -n "s/^$name //p" "$KIT/seconds")
seconds=${seconds:-1}
echo "$name $began $limit $(tar -tzf "$KIT/out.tar.gz" 2>/dev/null | sed -n 's|^./\\([a-z0-9_]*\\)/steps.txt$|\\1|p' | sort | tr '\\n' ',')" >>"$KIT/log"
"$@"
ends=$((began + (seconds < limit ? seconds : limit)))
echo "$ends" >"$KIT_CLOCK"
[ "$seconds" -le "$limit" ] || exit 124
"""
PROGRAM = "#!/bin/sh\n[ \"$1\" != --list-tests ] || exit 11\necho \"$@\"\n"
DEFAULTS = {"test_cuda": 8, "calibrate": 8, "measure_kernels.py": 32, "validate": 87, "gpt2_small": 60, "resnet50": 60, "memcheck": 12, "measure_training.py": 45, "gpt2_medium": 90}
# By hand: figures a second, of the times above.
ORDER = ["test_cuda", "calibrate", "measure_kernels.py", "validate", "gpt2_small", "memcheck", "resnet50", "measure_training.py", "gpt2_medium"]


class Kit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin").mkdir()
        for name, text in (("test_cuda", PROGRAM), ("plimsoll", PROGRAM), ("bin/python3", PROGRAM.replace("echo", "[ \"$1\" = -c ] || echo")),
                           ("bin/compute-sanitizer", PROGRAM), ("bin/timeout", TIMEOUT)):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)
        (self.folder / "run.sh").write_bytes(RUN.read_bytes())

    def run_kit(self, *words, seconds=(), **environment):
        (self.folder / "seconds").write_text("".join(f"{name} {takes}\n" for name, takes in {**DEFAULTS, **dict(seconds)}.items()))
        (self.folder / "clock").write_text("100\n")
        (self.folder / "log").write_text("")
        done = subprocess.run(["bash", "run.sh", *words, "-o", "out"], cwd=self.folder, capture_output=True, text=True, env={
            **os.environ, "PATH": f"{self.folder}/bin:/usr/bin:/bin", "KIT": str(self.folder), "KIT_CLOCK": str(self.folder / "clock"), **environment})
        log = [line.split(" ") for line in (self.folder / "log").read_text().splitlines()]
        return done, [(name, int(began) - 100, int(limit), held) for name, began, limit, held in log]

    def clock(self):
        return int((self.folder / "clock").read_text()) - 100

    def test_seven_minutes(self):
        done, log = self.run_kit("--minutes", "7")
        self.assertEqual(done.returncode, 0, done.stderr)
        with self.subTest("parts come by what they teach and end in time"):
            self.assertEqual([name for name, *_ in log], ORDER)
            self.assertLessEqual(self.clock(), 420 - 10)
            for name, began, limit, _ in log:
                self.assertLessEqual(began + limit, 420 - 10, name)
        with self.subTest("results are in the archive behind each part"):
            parts = ["test", "calibrate", "kernels", "replays", "gpt2_small", "memcheck", "resnet50", "training"]
            for number, (*_, held) in enumerate(log):
                self.assertEqual(set(filter(None, held.split(","))), set(parts[:number]))
            with tarfile.open(self.folder / "out.tar.gz") as archive:
                self.assertIn("./replays/replays.txt", archive.getnames())
                self.assertIn("./gpt2_medium/steps.txt", archive.getnames())
        with self.subTest("plans are those of --prepare, or made in a second"):
            text = (self.folder / "out/gpt2_small/plans_gpt2_small.txt").read_text()
            self.assertIn(f"--prepared {self.folder.resolve()}/out/prepared ", text)
            self.assertNotIn("pofo", text)  # plans half a minute
        with self.subTest("a dry run says the same and runs nothing"):
            dry, nothing = self.run_kit("--minutes", "7", "--dry-run")
            self.assertEqual((dry.returncode, nothing), (0, []))
            said = re.findall(r"^(\w+): at (\d+) s, about (\d+) s, at most (\d+) s$", dry.stdout, re.MULTILINE)
            self.assertEqual([(int(began), int(most)) for _, began, _, most in said], [(began, limit) for _, began, limit, _ in log])

    def test_a_dry_run_of_a_minute(self):
        done, _ = self.run_kit("--minutes", "1", "--dry-run")
        self.assertIn("kernels: at 16 s, about 32 s, at most 34 s\nreplays: left out, needs 30 s, 2 are left\n", done.stdout)
        self.assertFalse((self.folder / "out").exists())

    def test_slow_parts_are_cut_and_those_without_room_left_out(self):
        done, log = self.run_kit("--minutes", "4", seconds={"validate": 1000, "gpt2_small": 1000}.items())
        self.assertEqual(done.returncode, 0, done.stderr)
        limits = {name: limit for name, _, limit, _ in log}
        self.assertEqual(limits, {"test_cuda": 60, "calibrate": 40, "measure_kernels.py": 45, "validate": 150, "memcheck": 32})
        self.assertIn("gpt2_small: left out, needs 70 s, 32 are left", done.stdout)
        self.assertIn("replays: exit code 124 (stopped: its time was over), 150 s", done.stdout)
        self.assertLessEqual(self.clock(), 240)

    def test_the_archive_keeps_its_size_and_names_what_stays_out(self):
        self.assertIn("most_bytes=${RESULTS_BYTES:-16000000}", RUN.read_text())
        (self.folder / "out/replays").mkdir(parents=True)
        (self.folder / "out/replays/large.bin").write_bytes(os.urandom(200000))
        done, _ = self.run_kit("--minutes", "1", RESULTS_BYTES="100000")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLessEqual((self.folder / "out.tar.gz").stat().st_size, 100000)
        with tarfile.open(self.folder / "out.tar.gz") as archive:
            self.assertNotIn("./replays/large.bin", archive.getnames())
            self.assertIn("./test/test_cuda.txt", archive.getnames())
        self.assertEqual((self.folder / "out/left_out.txt").read_text(), "./replays/large.bin\n")

    def test_plans_are_made_before_the_clock_counts(self):
        done, log = self.run_kit("--prepare")
        self.assertEqual(done.returncode, 0, done.stderr)
        said = [(self.folder / f"out/prepared/plan_{model}.txt").read_text() for model, *_ in log]
        self.assertEqual([model for model, *_ in log], ["gpt2_small", "resnet50", "gpt2_medium"])
        self.assertTrue(all(" --prepare " in each for each in said))

    def test_wrong_words_are_refused(self):
        for words, why in ((("--minutes", "x"), "--minutes: expected a whole number from 1 to 9999, found 'x'"),
                           (("--minutes", "0"), "--minutes: expected a whole number from 1 to 9999, found '0'"),
                           (("--minutes", "7", "a"), "--minutes chooses the parts itself"), (("--dry-run",), "--dry-run goes with --minutes")):
            done, log = self.run_kit(*words)
            self.assertEqual((done.returncode, done.stderr, log), (2, f"run.sh: {why}\n", []))


if __name__ == "__main__":
    unittest.main()
