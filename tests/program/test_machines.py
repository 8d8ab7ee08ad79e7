#!/usr/bin/env python3
"""Sweeps over several processes that others start: mpirun here, with four ranks, and a Slurm of our own with a controller, a
node and munge, where these are installed (slurmctld, slurmd, munge and slurm-client of Debian; their services need not run).
Everywhere its scripts are run by a stand-in for sbatch, too.

    tests/program/test_machines.py build/plimsoll
"""

import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

import killed_sweeps
from turns import eleventh

PROGRAM = next((pathlib.Path(word).resolve() for word in sys.argv[1:] if word.endswith("plimsoll")), None)
EXPERIMENT = """format: plimsoll.experiment.v1
name: machines
traces: ['uniform:{6..9}', 'random:stages=12,seed=3']
platforms: [ideal]
strategies: [store_all, rotor, chen_sqrt]
memory: {from: 40 %, to: store_all, count: 4}
micro_batches: [1, 2]
engine: event
"""
MPI = PROGRAM is not None and shutil.which("mpirun") and (PROGRAM.parent / "libplimsoll_mpi.so").exists()
DAEMONS = [name for name in ("slurmctld", "slurmd", "munged", "sbatch") if not shutil.which(name, path="/usr/sbin:/usr/bin")]


def results_of(folder):
    """The results without what is measured."""
    text = pathlib.Path(folder, "results.jsonl").read_text()
    return re.sub(r'"solve_s":[^,}]*,"simulate_s":[^,}]*', "", text)


def records_of(folder):
    return [json.loads(line) for line in pathlib.Path(folder, "results.jsonl").read_text().splitlines()]


class Machines(unittest.TestCase):
    def setUp(self):
        self.kept = tempfile.TemporaryDirectory()
        self.addCleanup(self.kept.cleanup)
        self.folder = pathlib.Path(self.kept.name)
        self.experiment = self.folder / "e.yaml"
        self.experiment.write_text(EXPERIMENT)

    def swept(self, *words, code=0):
        run = subprocess.run([PROGRAM, "sweep", *words], capture_output=True, text=True)
        self.assertEqual(run.returncode, code, run.stderr)
        return run

    def expected(self, *words):
        self.swept(self.experiment, "-o", self.folder / "alone", *words)
        return results_of(self.folder / "alone")


@unittest.skipUnless(MPI, "there is no mpirun, or the program was built without Boost.MPI: sweeps over ranks were not tried")
class Ranks(Machines):
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def ranks(self, *words):
        return subprocess.run(["mpirun", "--oversubscribe", *map(str, words)], capture_output=True, text=True,
                              env=self.environment, timeout=120)

    def test_same_results(self):
        run = self.ranks("-n", 4, PROGRAM, "sweep", self.experiment, "-o", self.folder / "ranks")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(results_of(self.folder / "ranks"), self.expected())
        self.assertEqual(json.loads((self.folder / "ranks/manifest.json").read_text())["status"], "complete")

    def test_other_experiment(self):
        other = self.folder / "other.yaml"
        other.write_text(EXPERIMENT.replace("count: 4", "count: 3"))
        words = ["sweep", self.experiment, "-o", self.folder / "out"]
        run = self.ranks("-n", 1, PROGRAM, *words, ":", "-n", 1, PROGRAM, "sweep", other, "-o", self.folder / "out")
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("rank 1 of 2 has another experiment, other files or another build than rank 0", run.stderr)
        other.write_text(EXPERIMENT.replace("engine", "engin"))
        run = self.ranks("-n", 1, PROGRAM, *words, ":", "-n", 1, PROGRAM, "sweep", other, "-o", self.folder / "out")
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("rank 1 of 2: " + str(other) + ":8:1: engin: unknown key", run.stderr)

    def test_wrong_input_is_told_once(self):
        self.experiment.write_text(EXPERIMENT.replace("engine", "engin"))
        run = self.ranks("-n", 4, PROGRAM, "sweep", self.experiment, "-o", self.folder / "out")
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertEqual(run.stderr.count("engin: unknown key"), 1, run.stderr)

    def kill_last_rank(self, *flags):
        """Of three, in the middle of its work; returns the words that say which sweep that was."""
        self.experiment.write_text(EXPERIMENT.replace("uniform:{6..9}", "random:stages={60..64},seed=1"))
        words = [self.experiment, "-o", self.folder / "ranks"]
        run = subprocess.Popen(["mpirun", "--oversubscribe", *flags, "-n", "3", PROGRAM, "sweep", *words],
                               env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        results = self.folder / "ranks/results.jsonl"
        until = time.monotonic() + 60
        while run.poll() is None and time.monotonic() < until:
            if results.exists() and results.read_bytes().count(b"\n") >= 5:
                break
            time.sleep(0.01)
        if run.poll() is None:
            children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
            os.kill(int(children[-1]), signal.SIGKILL)
        run.wait(timeout=60)
        rows = [line for line in results.read_text().split("\n")[:-1]]
        self.assertEqual(len(rows), len({json.loads(row)["point"] for row in rows}))
        return words

    def test_killed_rank(self):
        words = self.kill_last_rank()
        self.swept(*words, "--resume")
        self.assertEqual(results_of(self.folder / "ranks"), self.expected())

    @eleventh(2)  # ten seconds of silence
    def test_killed_rank_that_others_survive(self):
        self.kill_last_rank("--enable-recovery")
        self.assertEqual(json.loads((self.folder / "ranks/manifest.json").read_text())["status"], "complete")
        self.assertEqual(results_of(self.folder / "ranks"), self.expected())


class Databases(Machines):
    def test_rows_are_those_of_the_records(self):
        for k in (2, 1):
            self.swept(self.experiment, "-o", self.folder / "shards", "--shard", f"{k}/2", "-q")
        self.swept(self.experiment, "-o", self.folder / "whole", "-q")
        for name, of in (("one", "shards"), ("two", "one"), ("other", "whole")):
            subprocess.run([PROGRAM, "merge", self.folder / of, "-o", self.folder / name], check=True, capture_output=True)
        files = {name: (self.folder / name / "results.sqlite").read_bytes() for name in ("one", "two")}
        self.assertEqual(files["one"], files["two"])
        database = sqlite3.connect(self.folder / "one/results.sqlite")
        self.addCleanup(database.close)
        database.row_factory = sqlite3.Row
        rows = database.execute("select * from results order by point").fetchall()
        records = records_of(self.folder / "one")
        self.assertEqual(len(rows), 120)
        seen = set()
        for row, record in zip(rows, records, strict=True):
            for column in row.keys():
                value = record.get(column)
                if isinstance(value, (dict, list)):
                    continue  # the column has its one number
                seen.add(column)
                self.assertEqual(row[column], value, column)
        self.assertGreater(len(seen), 30)
        self.assertEqual(list(rows[0].keys())[:4], ["point", "case", "build", "key"])
        cases = database.execute("select trace, micro_batches, lower_bound_bytes from cases order by \"case\"").fetchall()
        manifest = json.loads((self.folder / "one/manifest.json").read_text())
        self.assertEqual([tuple(case) for case in cases],
                         [(c["trace"], c["micro_batches"], c["lower_bound_bytes"]) for c in manifest["cases"]])


class Caches(Machines):
    def test_two_experiments_share_answers(self):
        cache = self.folder / "cache"
        self.swept(self.experiment, "-o", self.folder / "first", "--cache", cache)
        other = self.folder / "other.yaml"
        other.write_text(EXPERIMENT.replace("[store_all, rotor, ", "[periodic, rotor, ").replace("{6..9}", "{7..10}"))
        self.swept(other, "-o", self.folder / "alone")
        files = sorted(file for file in cache.rglob("*") if file.is_file())
        self.assertEqual(len(files), 120)
        for torn, text in zip(files, ("", "{", '{"key": 1}', "null\n")):  # as power cuts leave them
            torn.write_text(text)
        run = self.swept(other, "-o", self.folder / "second", "--cache", cache)
        self.assertEqual(results_of(self.folder / "second"), results_of(self.folder / "alone"))
        shared = int(re.search(r", (\d+) of them from the cache", run.stderr)[1])
        self.assertTrue(64 - 4 <= shared <= 64, run.stderr)  # four cases with two strategies, micro-batches of 1 and 2
        taken = {row["key"]: row["solve_s"] for row in records_of(self.folder / "first")}
        rows = records_of(self.folder / "second")
        self.assertEqual(sum(taken.get(row["key"], -1) == row["solve_s"] for row in rows), shared)
        run = self.swept(other, "-o", self.folder / "third", "--cache", cache)
        self.assertIn("120 of 120 points in ", run.stderr)
        self.assertIn(", 120 of them from the cache", run.stderr)

    def test_a_file_is_no_cache(self):
        run = self.swept(self.experiment, "-o", self.folder / "out", "--cache", self.experiment, code=2)
        self.assertRegex(run.stderr, "^--cache: '.*e.yaml' cannot be a folder: ")


class ProgressLine(Machines):
    def seen_on_terminal(self, *words):
        """On one of 72 columns."""
        self.experiment.write_text(EXPERIMENT.replace("uniform:{6..9}", "random:stages={60..64},seed=1"))
        master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 72, 0, 0))
        run = subprocess.Popen([PROGRAM, "sweep", self.experiment, "-o", self.folder / "out", *words], stderr=terminal,
                               stdout=subprocess.DEVNULL)
        os.close(terminal)
        text = b""
        try:
            while more := os.read(master, 65536):
                text += more
        except OSError:  # nobody writes any more
            pass
        os.close(master)
        self.assertEqual(run.wait(), 0)
        return text.decode()

    def test_line_that_is_rewritten(self):
        lines = self.seen_on_terminal().split("\r\x1b[K")[1:]
        told = [line for line in lines if "points" in line and "machines: complete" not in line]
        self.assertGreater(len(told), 0)
        self.assertLess(max(map(len, told)), 72)
        self.assertNotIn("\x1b", "".join(lines))  # nor colours
        self.assertRegex(" ".join(told), r"\d+ of 144 points(, \d+ infeasible)?, [0-9.]+/s, (about|at least) \d+ s left")

    def test_quiet(self):
        self.assertEqual(self.seen_on_terminal("-q"), "")


class Killed(Machines):
    @eleventh(6)
    def test_no_row_is_lost_or_doubled(self):
        killer, said = killed_sweeps.disturb(PROGRAM, 4, int(os.environ.get("PLIMSOLL_TURN", "0")), self.folder)
        self.assertEqual(sum(killer.counts.values()), 4)
        print(said, file=sys.stderr)


class SlurmScripts(Machines):
    def test_a_stand_in_runs_both_jobs(self):
        sbatch = self.folder / "bin/sbatch"
        sbatch.parent.mkdir()
        sbatch.write_text("""#!/bin/bash
script=${!#}
case $script in
  */array.sbatch) for k in $(seq "$(sed -n 's/^#SBATCH --array=1-//p' "$script")"); do
      SLURM_ARRAY_TASK_ID=$k bash "$script" >&2 || exit 1
    done
    echo '17;here' ;;
  *) [ "$2" = --dependency=afterany:17 ] && bash "$script" >&2 && echo 18 ;;
esac
""")
        sbatch.chmod(0o755)
        path = f"{sbatch.parent}:{os.environ['PATH']}"
        changes = ["--set", "name='a b'", "--set", "micro_batches=[1, 4]"]
        run = subprocess.run([PROGRAM, "sweep", self.experiment, "-o", self.folder / "it's", "--slurm", "3", *changes],
                             capture_output=True, text=True, env={**os.environ, "PATH": path})
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout, "job 17: 3 tasks, results in .*/shards\njob 18: merges them behind it, into .*/merged\n")
        self.assertEqual(results_of(self.folder / "it's/merged"), self.expected(*changes))

    def test_without_slurm(self):
        run = subprocess.run([PROGRAM, "sweep", self.experiment, "-o", self.folder / "out", "--slurm", "3"],
                             capture_output=True, text=True, env={**os.environ, "PATH": str(self.folder)})
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertEqual(run.stderr, "--slurm: there is no sbatch here; --slurm-script prints the scripts instead\n")
        self.assertFalse((self.folder / "out").exists())

    def test_script(self):
        run = self.swept(self.experiment, "-o", self.folder / "out", "--slurm", "64", "--slurm-script", "--slurm-options",
                         "--time=1:00:00 --partition=all")
        self.assertIn("#SBATCH --array=1-64\n", run.stdout)
        self.assertEqual(run.stdout.count("#SBATCH --time=1:00:00 --partition=all\n"), 2)
        self.assertFalse((self.folder / "out").exists())


CONFIGURATION = """ClusterName=here
SlurmctldHost={host}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldPort={port}
SlurmdPort={next_port}
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,sched_min_interval=20000,batch_sched_delay=0
ReturnToService=2
NodeName={host} CPUs={cores} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@unittest.skipIf(DAEMONS, f"no {', '.join(DAEMONS)} (slurmctld, slurmd, munge, slurm-client): a Slurm of our own was not tried")
@unittest.skipIf(os.geteuid() != 0, "not root: a Slurm of our own was not tried")
class Slurm(Machines):
    def setUp(self):
        super().setUp()
        self.folder.chmod(0o755)
        for name in ("state", "spool", "munge"):
            (self.folder / name).mkdir(mode=0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        munge = self.folder / "munge"
        self.start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}/socket",
                   f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        self.wait_until((munge / "socket").exists)
        with socket.socket() as free, socket.socket() as next_free:
            free.bind(("", 0))
            next_free.bind(("", 0))
            ports = free.getsockname()[1], next_free.getsockname()[1]
        configuration = self.folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(host=socket.gethostname().split(".")[0], folder=self.folder,
                                                      port=ports[0], next_port=ports[1], cores=os.cpu_count()))
        self.environment = {**os.environ, "SLURM_CONF": str(configuration)}
        for daemon in ("slurmctld", "slurmd"):
            self.start(daemon, "-D", "-f", configuration)
        self.wait_until(lambda: subprocess.run(["scontrol", "ping"], env=self.environment, capture_output=True).returncode == 0)
        self.addCleanup(subprocess.run, ["scancel", "--user=root", "--signal=KILL", "--full"], env=self.environment,
                        capture_output=True)

    def start(self, daemon, *words):
        """Until the test ends, or this process is killed."""
        run = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", f"/usr/sbin/{daemon}", *words], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)

    def wait_until(self, holds):
        until = time.monotonic() + 60
        while not holds():
            self.assertLess(time.monotonic(), until, self.logs())
            time.sleep(0.05)

    def slurm(self, *words):
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, check=True, timeout=60).stdout

    def submitted(self):
        """The number of the array, of three tasks."""
        return self.slurm(PROGRAM, "sweep", self.experiment, "-o", self.folder / "out", "--slurm", "3").split()[1].strip(":")

    def logs(self):
        return "".join(log.read_text() for log in sorted(self.folder.glob("*/slurm-*.log")))

    def wait_for_all_jobs(self):
        self.wait_until(lambda: not self.slurm("squeue", "--noheader"))

    def test_array_merge_and_a_killed_task(self):
        self.experiment.write_text(EXPERIMENT.replace("uniform:{6..9}", "random:stages={60..62},seed=1"))
        for _ in range(4):  # on a busy machine a task may have answered all before the signal comes
            array = self.submitted()
            results = self.folder / "out/shards/results.2-of-3.jsonl"
            self.wait_until(lambda: results.exists() and results.read_bytes().count(b"\n") >= 5)
            self.slurm("scancel", "--signal=KILL", "--full", f"{array}_2")
            self.wait_for_all_jobs()
            there = self.merged_rows()
            if len(there) < 96:
                break
            shutil.rmtree(self.folder / "out")
        self.assertTrue(64 + 5 <= len(there) < 96, self.logs())
        self.submitted()
        self.wait_for_all_jobs()
        self.assertEqual(self.merged_rows() | there, self.merged_rows())  # what had been answered was kept, times and all
        self.assertEqual(results_of(self.folder / "out/merged"), self.expected())

    def merged_rows(self):
        return {row["point"]: row for row in records_of(self.folder / "out/merged")}


if __name__ == "__main__":
    unittest.main(argv=[word for word in sys.argv if not word.endswith("plimsoll")])
