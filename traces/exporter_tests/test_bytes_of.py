"""Bytes that are measured again, beside the times of a trace."""

import json
import os
import unittest

from plimsoll.trace.errors import UsageError

from .support import NO_TORCH, WithFolder, torch


@unittest.skipIf(torch is None, NO_TORCH)
class BytesOf(WithFolder):
    def test_bytes_measured_again_leave_times_and_work_as_they_were(self):
        before = json.loads(json.dumps(self.trace("small")))
        truth = json.loads(json.dumps(before["stages"]))
        for stage in before["stages"]:
            stage["backward_s"] += 1
            stage["saved_bytes"] += 4
            stage["kept_tensors"] = [0]
            del stage["backward_released_workspace_bytes"]
        old, new = (os.path.join(self.folder.name, name) for name in ("old.json", "new.json"))
        with open(old, "w", encoding="utf-8") as file:
            json.dump(before, file)
        self.measure("--model", f"{self.model}:small", "--memory-counter", "sweep", "--bytes-of", old, "-o", new)
        with open(new, encoding="utf-8") as file:
            after = json.load(file)
        for stage, expected, stated in zip(after["stages"], truth, before["stages"]):
            self.assertEqual(stage, expected | {"backward_s": stated["backward_s"]})
        self.assertEqual(after["source"]["command"], before["source"]["command"])
        self.assertIn("times and work are of the command above", after["source"]["bytes"]["measured_again"])

    def test_bytes_of_another_chain_are_refused(self):
        old = os.path.join(self.folder.name, "of_small.json")
        with open(old, "w", encoding="utf-8") as file:
            json.dump(self.trace("small") | {"name": "tied"}, file)
        with self.assertRaises(UsageError) as raised:
            self.measure("--model", f"{self.model}:tied", "--bytes-of", old, "-o", os.path.join(self.folder.name, "none.json"))
        self.assertIn("--bytes-of: the trace is of another chain: stages: ['first', 'second', 'loss'] in the trace, "
                      "['stage0', 'stage1', 'stage2', 'loss'] in the model", str(raised.exception))
