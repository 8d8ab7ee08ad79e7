"""What a stage saves for its backward, and how live bytes move while it runs."""

import weakref

import torch
from plimsoll.torch.versions import storage_of

from .executor import Facts, Probe
from .saved_uses import shape_and_dtype, unseen_by_hooks, uses_of_saved
from .storages import distinct_tensors_in, dtype_name, storage_bytes, storages_there, tensors_in


class SavedProbe(Probe):
    """Storages that autograd saves in each forward, through saved_tensors_hooks, and the gradients of boundary tensors. A
    boundary tensor is known by an id for its storage."""

    def __init__(self, chain):
        self.device = chain.parameters()[0].device.type
        self.always = storage_bytes(chain.parameters()) | storage_bytes(chain.buffers())
        self.stages = []
        self.tensors = []      # by id
        self.boundaries = []   # boundaries[j]: ids of the distinct storages of x_j
        self.positions = []    # positions[j]: the id of each distinct tensor of x_j; None for an empty one
        self.needs = []        # needs[j]: whether each of these needs a gradient
        self.ids = {}          # address -> id: all boundaries are held while ids are given
        self.gradient_bytes = {}  # id -> bytes, once a backward has made it
        self.hooks = None

    def let_go(self):
        """Where a forward has ended in an error."""
        if self.hooks is not None:
            self.hooks.__exit__(None, None, None)

    def begin(self, phase, stage, inputs):
        if phase != "forward":
            return
        if stage == 0:
            self.add_boundary(inputs)
        self.inputs = storage_bytes(tensors_in(inputs))
        self.before = storages_there()
        self.packed = []
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, lambda tensor: tensor)
        self.hooks.__enter__()

    def pack(self, tensor):
        # A detached alias: to return the tensor itself would tie a saved output to its own graph in a cycle.
        alias = tensor.detach()
        if tensor.device.type == self.device:  # numbers such as the 3 of x / 3 are saved too, in the host's memory
            self.packed.append(weakref.ref(alias))
        return alias

    def end(self, phase, stage, outputs):
        if phase != "forward":
            return
        self.hooks = self.hooks.__exit__(None, None, None)
        before = {address for address, there in self.before.items() if not there.expired()}
        views = [alias() for alias in self.packed if alias() is not None]
        views += [tensor for tensor in unseen_by_hooks(outputs, views) if tensor.device.type == self.device]
        saved = storage_bytes(views)
        uses = uses_of_saved(outputs, self.always)
        out = storage_bytes(tensors_in(outputs))
        self.add_boundary(outputs)
        own = {a for a in out if a not in before}
        inner = {a: n for a, n in saved.items() if a not in out and a not in before}
        self.stages.append({
            "inner": sum(inner.values()),
            "inner_storages": inner,
            "numbers": sum({storage_of(view).data_ptr(): 8 for view in views if view.dim() == 0 and storage_of(view).nbytes() == 8
                            and storage_of(view).data_ptr() in inner}.values()),
            "input_storages": set(self.inputs),
            "output_storages": own,
            "output": sum(out.values()),
            "new_output": sum(out[a] for a in own),
            "passed": sum(n for a, n in out.items() if a in self.inputs),
            "kept": sorted(self.ids[a] for a in saved if a in self.inputs or a in own),
            "saved_tensors": [
                {"bytes": n} | shape_and_dtype([view for view in views if storage_of(view).data_ptr() == a])
                | {"uses": uses.get(a, ["other.input"])} for a, n in inner.items()],
            "boundary_uses": [{"tensor": self.ids[a], "uses": uses.get(a, ["other.input"])}
                              for a in saved if a in self.inputs or a in own],
            "keeps_input": any(a in saved for a in self.inputs),
            "keeps_output": any(a in saved for a in own),
            "elsewhere": sum(n for a, n in saved.items()
                             if a in before and a not in self.inputs and a not in self.always),
        })

    def add_boundary(self, value):
        """The id of each tensor's storage; storages that boundaries share have one."""
        boundary, positions, j = [], [], len(self.boundaries)
        for tensor in distinct_tensors_in(value):
            storages = storage_bytes([tensor])
            positions.append(None)
            for address, bytes_ in storages.items():
                if address not in self.ids:
                    self.ids[address] = len(self.tensors)
                    self.tensors.append({"boundary": j, "bytes": bytes_, "shape": list(tensor.shape),
                                         "dtype": dtype_name(tensor)})
                positions[-1] = self.ids[address]
            if positions[-1] is not None and positions[-1] not in boundary:
                boundary.append(positions[-1])
        self.boundaries.append(boundary)
        self.positions.append(positions)
        self.needs.append([tensor.requires_grad for tensor in distinct_tensors_in(value)])

    def made_gradients(self, stage, contributed):
        made = {}
        for position, gradient in contributed.items():
            tensor = self.positions[stage][position]
            made[tensor] = made.get(tensor, 0) + storage_of(gradient).nbytes()
        new = {tensor: bytes_ for tensor, bytes_ in made.items() if tensor not in self.gradient_bytes}
        self.gradient_bytes |= new
        self.stages[stage] |= {"gradient_tensors": sorted(made), "new_gradient": sum(new.values())}

    def input_gradient(self, stage):
        """Bytes of the gradients that exist of what the stage reads, once its backward is over."""
        made = {tensor for facts in self.stages[stage:] for tensor in facts["gradient_tensors"]}
        return sum(self.gradient_bytes[tensor] for tensor in made & set(self.boundaries[stage]))

    def gradient_read(self, stage):
        """Bytes of the gradients that die with the stage's backward: of the tensors that it made."""
        made = set(self.boundaries[stage + 1]) - set(self.boundaries[stage]) if stage + 1 < len(self.stages) else ()
        return sum(self.gradient_bytes.get(tensor, 0) for tensor in made)

    def facts(self):
        """For runs that drop every tensor as soon as nobody needs it."""
        return Facts(self.positions[:-1] + [[]], self.needs, [set(stage["kept"]) for stage in self.stages])


class LiveProbe(Probe):
    """{(phase, stage): bytes} of the change, the peak above the start, and the change once boundaries are gone."""

    def __init__(self, chain, counter):
        self.chain = chain
        self.counter = counter
        self.first = counter.live()
        self.delta, self.peak, self.final_delta, self.new_gradients = {}, {}, {}, {}
        self.highest = 0

    def begin(self, phase, stage, inputs):
        self.gradients = self.gradient_bytes()
        self.counter.reset_peak()
        self.start = self.counter.live()

    def end(self, phase, stage, outputs):
        self.delta[phase, stage] = self.counter.live() - self.start
        self.peak[phase, stage] = self.counter.peak() - self.start
        self.highest = max(self.highest, self.counter.peak() - self.first)
        self.new_gradients[phase, stage] = self.gradient_bytes() - self.gradients

    def released(self, stage):
        self.final_delta["backward", stage] = self.counter.live() - self.start

    def gradient_bytes(self):
        return sum(storage_bytes([p.grad for p in self.chain.parameters() if p.grad is not None]).values())


class PlainProbe(Probe):
    """Of a plain iteration: the peak of the forwards, and of each stage's backward, above what was alive before."""

    def __init__(self, counter):
        self.counter = counter
        self.first = counter.live()
        self.forward_peak, self.stage, self.peak = 0, None, {}

    def begin(self, phase, stage, inputs):
        self.counter.reset_peak()

    def reached(self, stage):
        if stage == self.stage:
            return
        self.finish_stage()
        self.stage = stage

    def end(self, phase, stage, outputs):
        self.finish_stage()

    def finish_stage(self):
        peak = self.counter.peak() - self.first
        if self.stage is None:
            self.forward_peak = peak
        else:
            self.peak[self.stage] = peak
        self.counter.reset_peak()
