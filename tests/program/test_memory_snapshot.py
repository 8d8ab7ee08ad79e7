"""What 'export memory-snapshot' writes is what torch pickles, for a reader that is not ours; what 'import' reads of it
is what the export wrote; and pickles that are no snapshots end with one line and exit code 2.

/usr/bin/python3 tests/program/test_memory_snapshot.py build/plimsoll
"""
import json
import os
import pickle
import pickletools
import random
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
MIB = 1 << 20

# Those that torch/utils/viz/MemoryViz.js of PyTorch reads.
VIEWER = {"APPENDS", "BINGET", "BININT", "BININT1", "BININT2", "EMPTY_DICT", "EMPTY_LIST", "FRAME", "LONG1", "LONG_BINGET", "MARK",
          "MEMOIZE", "PROTO", "SETITEMS", "SHORT_BINUNICODE", "STOP", "TUPLE2", "APPEND", "NEWFALSE", "BINPUT", "BINUNICODE",
          "EMPTY_TUPLE", "NEWTRUE", "NONE", "BINFLOAT", "TUPLE", "TUPLE1", "TUPLE3", "LONG_BINPUT", "LIST", "DICT", "SETITEM"}


def run(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)


def event(action, addr=0, size=0, stream=0):
    return {"action": action, "addr": addr, "size": size, "stream": stream, "time_us": 0, "frames": []}


class Snapshot(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def export(self, allocator, *more):
        file = self.path("run.pickle")
        done = run("export", "memory-snapshot", "-t", "resnet50_b8_cpu", "-p", "h200", "-s", "chen_sqrt", "--allocator", allocator, "-o", file,
                   *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return file

    def imported(self, snapshot, *more):
        file = self.path("in.pickle")
        with open(file, "wb") as out:
            out.write(snapshot if isinstance(snapshot, bytes) else pickle.dumps(snapshot))
        return run("import", "memory-snapshot", file, *more)

    def test_a_reader_that_is_not_ours_finds_what_torch_writes(self):
        for allocator in ("cuda", "cuda-expandable", "cuda(roundup=8,cublas_workspace=yes)"):
            file = self.export(allocator, "--optimizer", "adam")
            with open(file, "rb") as data:
                content = data.read()
            self.assertLessEqual({op.name for op, _, _ in pickletools.genops(content)}, VIEWER)
            snapshot = pickle.loads(content)
            self.assertEqual(set(snapshot), {"segments", "device_traces", "allocator_settings", "external_annotations"})
            self.assertEqual(snapshot["allocator_settings"]["expandable_segments"], allocator == "cuda-expandable")
            for segment in snapshot["segments"]:
                self.assertEqual(set(segment), {"device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream",
                                                "segment_type", "segment_pool_id", "is_expandable", "frames", "blocks"})
                address = segment["address"]
                for block in segment["blocks"]:
                    self.assertEqual(set(block), {"address", "size", "requested_size", "state", "frames"})
                    self.assertEqual(block["address"], address)
                    self.assertIn(block["state"], ("active_allocated", "inactive"))
                    address += block["size"]
                self.assertEqual(address, segment["address"] + segment["total_size"])
                self.assertEqual(segment["allocated_size"], sum(b["size"] for b in segment["blocks"] if b["state"] == "active_allocated"))
            self.follow(snapshot)

    def follow(self, snapshot):
        """The history leads from nothing to the segments, and no two blocks overlap on the way."""
        live, segments, reserved = {}, [], 0
        for e in snapshot["device_traces"][0]:
            self.assertEqual(set(e), {"action", "addr", "size", "stream", "time_us", "frames"})
            end = e["addr"] + e["size"]
            if e["action"] in ("segment_alloc", "segment_map"):
                self.assertTrue(all(end <= a or b <= e["addr"] for a, b in segments))
                segments.append((e["addr"], end))
                reserved += e["size"]
            elif e["action"] == "alloc":
                self.assertTrue(all(end <= a or a + n <= e["addr"] for a, n in live.items()))
                live[e["addr"]] = e["size"]
                self.assertEqual(len(e["frames"]), 1)
            elif e["action"] == "free_completed":
                self.assertEqual(live.pop(e["addr"]), e["size"])
        self.assertEqual(reserved, sum(s["total_size"] for s in snapshot["segments"]))
        active = {b["address"]: b["requested_size"] for s in snapshot["segments"] for b in s["blocks"] if b["state"] != "inactive"}
        self.assertEqual(live, active)

    def test_what_was_exported_is_reproduced_by_its_allocator_alone(self):
        for allocator, same in (("cuda", {"as its settings say", "cuda"}), ("cuda-expandable", {"as its settings say", "cuda-expandable"}),
                                ("cuda(roundup=2)", {"as its settings say"})):
            out = self.path("found.json")
            done = run("import", "memory-snapshot", self.export(allocator), "-o", out)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(out, encoding="utf-8") as data:
                device = json.load(data)["devices"][0]
            self.assertEqual({a["allocator"] for a in device["allocators"] if a["reproduces"]}, same, allocator)
            self.assertEqual(device["older_buffers"], 0)
            self.assertEqual(device["reserved_before_bytes"], 0)
            self.assertIn(": the same\n", done.stdout)

    def test_a_history_that_was_cut_off_begins_with_what_is_older(self):
        # A buffer of 30 MiB is freed that the history did not see; one of 5 MiB stays that it did not see either.
        done = self.imported({"device_traces": [[event("free_requested", 1000, 30 * MIB), event("free_completed", 1000, 30 * MIB),
                                                 event("segment_free", 1000, 30 * MIB)]],
                              "segments": [{"device": 0, "address": 5 * MIB, "total_size": 20 * MIB, "stream": 0, "segment_type": "large",
                                            "blocks": [{"size": 5 * MIB, "state": "active_allocated"}, {"size": 15 * MIB, "state": "inactive"}]}]})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("device 0: 3 events on 1 streams, 2 buffers older than the history\n", done.stdout)
        self.assertIn(f"{50 * MIB} B reserved at most, {50 * MIB} B before it; {35 * MIB} B allocated at most\n", done.stdout)
        self.assertIn(f"cuda {20 * MIB:>31} B reserved, {50 * MIB} B at most: the same\n", done.stdout)

    def test_a_history_cut_off_anywhere_is_reproduced_by_its_allocator(self):
        for allocator in ("cuda", "cuda-expandable"):
            with open(self.export(allocator), "rb") as data:
                snapshot = pickle.load(data)
            events = snapshot["device_traces"][0]
            for cut in range(0, len(events), len(events) // 8):
                while events[cut - 1]["action"] in ("segment_alloc", "segment_map", "free_requested"):
                    cut += 1
                out = self.path("found.json")
                done = self.imported(dict(snapshot, device_traces=[events[cut:]]), "-o", out)
                self.assertEqual(done.returncode, 0, done.stderr)
                with open(out, encoding="utf-8") as data:
                    device = json.load(data)["devices"][0]
                same = {a["allocator"] for a in device["allocators"] if a["reproduces"]}
                self.assertIn(allocator, same, f"{allocator} from event {cut} on: {done.stdout}")
                self.assertLessEqual(device["peak_allocated_bytes"], device["peak_reserved_bytes"])

    def test_states_and_protocols_of_all_versions_are_read(self):
        for state in ("active_allocated", "active_pending_free", "active_awaiting_free"):
            snapshot = {"device_traces": [[]], "segments": [{"device": 0, "address": 1 << 46, "total_size": 2 * MIB, "stream": -1, "segment_type": "small",
                                                             "is_expandable": False, "blocks": [{"size": 2 * MIB, "requested_size": 3, "state": state}]}]}
            for protocol in (2, 3, 4, 5):
                done = self.imported(pickle.dumps(snapshot, protocol=protocol))
                self.assertIn("2097152 B active", done.stdout, done.stderr)

    def refused(self, snapshot, message):
        done = self.imported(snapshot)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertEqual(done.stderr, f"{self.path('in.pickle')}: {message}\n")
        self.assertEqual(done.stdout, "")

    def test_what_would_run_code_is_refused(self):
        class Shell:
            def __reduce__(self):
                return os.system, ("touch " + outer.path("pwned"),)
        outer = self
        for protocol in (2, 4):
            done = self.imported(pickle.dumps({"segments": Shell(), "device_traces": []}, protocol=protocol))
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, r"^\S*: pickle: byte \d+: instruction \d+ is not a list, dictionary, text or number; expected a pickle of "
                                          r"data only\n$")
        self.assertFalse(os.path.exists(self.path("pwned")))

    def test_wrong_snapshots_are_refused_in_one_line(self):
        segment = {"device": 0, "address": 0, "total_size": 512, "stream": 0, "segment_type": "small", "blocks": []}
        self.refused([], "expected a dictionary, found a list")
        self.refused({"segments": []}, "device_traces: missing key")
        self.refused({"segments": [{}], "device_traces": []}, "segments[0].device: missing key")
        self.refused({"segments": [dict(segment, total_size="2")], "device_traces": []},
                     "segments[0].total_size: expected a whole number, found a text")
        self.refused({"segments": [dict(segment, total_size=-1)], "device_traces": []},
                     "segments[0].total_size: expected bytes, at most 4 PiB, found -1")
        self.refused({"segments": [dict(segment, segment_pool_id=(0, "x"))], "device_traces": []},
                     "segments[0].segment_pool_id: expected two whole numbers")
        self.refused({"segments": [dict(segment, device=5000)], "device_traces": []},
                     "segments[0].device: expected a device from 0 to 1023, found 5000")
        self.refused({"segments": [dict(segment, blocks=[{"size": 512, "state": "activ_allocated"}])], "device_traces": []},
                     "segments[0].blocks[0].state: expected active_allocated, active_pending_free, active_awaiting_free or inactive, found "
                     "'activ_allocated'; did you mean 'active_allocated'?")
        self.refused({"segments": [], "device_traces": [[event("aloc")]]},
                     "device_traces[0][0].action: expected alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, "
                     "segment_unmap or oom, found 'aloc'; did you mean 'alloc'?")
        self.refused(b"{}", "pickle: byte 0: expected a pickle of protocol 2 to 5, which begins with 0x80")
        self.refused(b"", "pickle: byte 0: expected a pickle of protocol 2 to 5, which begins with 0x80")
        self.refused(pickle.dumps({"segments": [], "device_traces": [[2 ** 70]]}), "pickle: byte 47: expected a whole number of at most 64 bits")

    def test_hostile_pickles_end_soon(self):
        # The same list of events at 20,000 places: 400 million events in a file of some 100 KB.
        events = [event("alloc", 512 * i, 512) for i in range(20000)]
        done = self.imported(pickle.dumps({"segments": [], "device_traces": [events] * 20000}))
        self.assertEqual(done.returncode, 2)
        self.assertIn("has more entries than bytes, as no snapshot has", done.stderr)
        for content in (b"\x80\x02]q\x00h\x00a.", b"\x80\x02}q\x00X\x08\x00\x00\x00segmentsh\x00s.",  # a list in itself, a dictionary in itself
                        b"\x80\x02]r\xff\xff\xff\xff.", b"\x80\x02X\xff\xff\xff\xffa.", b"\x80\x02e.", b"\x80\x02(.", b"\x80\x02(]e.", b"\x80\x02}(Ku.",
                        b"\x80\x02h\x00.", b"\x80\x02NN.", b"\x80\x02\x87.", b"\x80\x09N."):
            done = self.imported(content)
            self.assertEqual(done.returncode, 2, content)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_cut_and_changed_files_never_crash(self):
        good = pickle.dumps({"segments": [{"device": 0, "address": 1 << 40, "total_size": 2 * MIB, "stream": 0, "segment_type": "small",
                                           "blocks": [{"size": 2 * MIB, "state": "inactive"}]}],
                             "device_traces": [[event("alloc", 7, 512), event("free_completed", 7, 512)]]}, protocol=4)
        for length in range(0, len(good), 3):
            self.assertEqual(self.imported(good[:length]).returncode, 2)
        chance = random.Random(5)
        for _ in range(150):
            changed = bytearray(good)
            for _ in range(chance.randint(1, 3)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            self.assertIn(self.imported(bytes(changed)).returncode, (0, 2))

    def test_what_cannot_be_exported_says_why(self):
        words = ("export", "memory-snapshot", "-t", "uniform:4", "-p", "ideal", "-s", "store_all")
        done = run(*words, "-o", self.path("x"))
        self.assertEqual((done.returncode, done.stderr), (2, "export: a memory snapshot is of the allocator cuda or cuda-expandable, found 'exact'\n"))
        done = run(*words, "--allocator", "cuda")
        self.assertEqual((done.returncode, done.stderr), (2, "export: a memory snapshot is not text; expected -o FILE\n"))


if __name__ == "__main__":
    unittest.main()
