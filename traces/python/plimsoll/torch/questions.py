"""Numbers and shapes that a model's code reads and that follow from its inputs only: asked again for other inputs before anything runs.

Their slice of the run, all steps that the answers follow from and no others, is a function of the inputs; another answer is refused by name.
"""

import hashlib

import torch

from .again import without_autocast
from .errors import Refused
from .origins import Blank, Place
from .values import map_leaves, tensors_in
from .versions import geometry, storage_of, view_of

MOST_SHOWN = 60  # characters of an answer


class OtherAnswer(Refused):
    """For these inputs the model's code would read something else than for the example, or other parameters are trained: another plan may be for
    that."""


class Questions:
    def __init__(self, origins, given, found):
        """`given`: {name of an input: Place}; `found`: [(text, Asked)], each text once for the same answer."""
        self.given = given
        self.sizes = [slot.bytes for slot in origins.by_number]
        self.found = sorted(found, key=lambda pair: pair[1].position)
        self.steps = self.slice_of(origins.steps)
        self.written = {slot for _, step in self.steps for slot in step.writes}
        self.there = {slot: tensor for slot, tensor in origins.there.items() if slot in self.needed}

    def slice_of(self, steps):
        """[(number, step)], what the answers follow from."""
        asked, needed, kept = list(self.found), set(), []
        for number in reversed(range(len(steps))):
            while asked and asked[-1][1].position > number:
                needed |= asked.pop()[1].reads
            if steps[number].writes & needed:
                needed |= steps[number].reads
                kept.append((number, steps[number]))
        for _, one in asked:
            needed |= one.reads
        self.needed = needed
        return kept[::-1]

    def answers(self):
        """For a plan, which is for these."""
        return [{"question": text, "answer": shown(asked.answer)} for text, asked in self.found]

    def refuse_other(self, expected):
        """Than those of a plan."""
        for (text, asked), other in zip(self.found, expected):
            if text == other["question"] and shown(asked.answer) != other["answer"]:
                raise OtherAnswer(f"{text}: for the example {other['answer']}, for these inputs {shown(asked.answer)}")

    def ask(self, tensors):
        """`tensors`: {name of an input: tensor}. Raises Refused where one is answered otherwise than for the example."""
        if not self.found:
            return
        with torch.no_grad(), without_autocast():
            self.run({self.given[name].slot: self.laid_out(self.given[name], tensor) for name, tensor in tensors.items()
                      if self.given[name].slot in self.needed} | {slot: storage_of(tensor) for slot, tensor in self.there.items()})

    def laid_out(self, place, tensor):
        """As in the example."""
        if geometry(tensor) == place.geometry and storage_of(tensor).nbytes() == self.sizes[place.slot] and place.slot not in self.written:
            return storage_of(tensor)
        room = torch.zeros(self.sizes[place.slot], dtype=torch.uint8, device=tensor.device)
        view_of(storage_of(room), place.geometry).copy_(tensor)
        return storage_of(room)

    def run(self, storages):
        steps = list(self.steps)
        for text, asked in self.found:
            while steps and steps[0][0] < asked.position:
                self.do(steps.pop(0)[1], storages, text)
            args, kwargs = self.filled(asked.arguments, storages)
            answer = asked.function(*args, **kwargs)
            if not is_same(answer, asked.answer):
                raise OtherAnswer(f"{text}: for the example {shown(asked.answer)}, for these inputs {shown(answer)}")

    def do(self, step, storages, text):
        args, kwargs = self.filled(step.arguments, storages)
        made = tensors_in(step.function(*args, **kwargs))
        for tensor, place in zip(made, step.made):
            if geometry(tensor) != place.geometry:
                raise OtherAnswer(f"{text}: for the example by way of a tensor of shape {list(place.geometry[1])}, for these inputs of shape "
                              f"{list(tensor.shape)}")
            storages[place.slot] = storage_of(tensor)

    def filled(self, arguments, storages):
        def tensor_of(leaf):
            if isinstance(leaf, Blank):
                return torch.zeros((), dtype=torch.bool, device=leaf.device).expand(leaf.shape)
            if not isinstance(leaf, Place):
                return leaf
            if leaf.slot not in storages:  # what is written as a whole
                storages[leaf.slot] = storage_of(torch.empty(self.sizes[leaf.slot], dtype=torch.uint8, device=leaf.geometry[-1]))
            return view_of(storages[leaf.slot], leaf.geometry)
        return map_leaves(arguments, tensor_of)


def is_same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and geometry(a)[:2] == geometry(b)[:2] and torch.equal(bits(a), bits(b))
    return type(a) is type(b) and repr(a) == repr(b)


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def shown(answer):
    text = str(answer.tolist() if isinstance(answer, torch.Tensor) else answer[0] if isinstance(answer, list) and len(answer) == 1 else answer)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}... ({hashlib.sha256(text.encode()).hexdigest()[:8]})"
