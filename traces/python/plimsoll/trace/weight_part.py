"""What must stay of a stage until the gradients of its weights are made, where its backward is split.

The backward's graph leads from the gradients of the outputs to those of the inputs and of the parameters. A node on a way to an
input from which another way leaves to parameters alone makes a gradient of weights. It needs what it saved, what the nodes on
that other way saved, and the gradient that arrives at it: this gradient is made by the input's part, and kept.
"""

from plimsoll.torch.nodes import held_by
from plimsoll.torch.versions import storage_of

from .memory import SavedProbe
from .storages import storage_bytes


class WeightPartProbe(SavedProbe):
    """Of a pass that computes the gradients of inputs only. `parts[stage]` has the bytes that are saved by the forward and those
    made by the input's part, and whether the stage's input, its output and the output's gradient are needed. It is None where what
    autograd saved is not all to be seen in the nodes of its graph, so that it cannot be told what belongs to which part."""

    def __init__(self, chain):
        super().__init__(chain)
        self.chain = chain
        self.parts = {}
        self.kept, self.hooks_of_nodes = None, []

    def divides(self, stage, root, entries, outgoing, first_gradient):
        nodes = Nodes(root.grad_fn, [entry.grad_fn for entry in entries])
        inner = self.stages[stage]["inner_storages"]
        if not inner.keys() <= saved_storages(nodes.all()).keys():
            self.parts[stage] = None
            return False
        needed = saved_storages(nodes.of_weights())
        facts = self.stages[stage]
        self.parts[stage] = {"saved": sum(bytes_ for address, bytes_ in inner.items() if address in needed),
                             "keeps_input": not needed.keys().isdisjoint(facts["input_storages"]),
                             "keeps_output": not needed.keys().isdisjoint(facts["output_storages"])}
        self.outgoing = {storage_of(gradient).data_ptr() for gradient in outgoing if gradient is not None}
        self.kept = []
        for node in nodes.making_weights():
            self.hooks_of_nodes.append(node.register_hook(lambda _, arrived: self.kept.extend(arrived)))
        return False

    def end(self, phase, stage, outputs):
        super().end(phase, stage, outputs)
        if phase != "backward":
            return
        for hook in self.hooks_of_nodes:
            hook.remove()
        self.hooks_of_nodes = []
        if self.kept is not None:
            kept = storage_bytes([gradient for gradient in self.kept if gradient is not None])
            made = sum(bytes_ for address, bytes_ in kept.items() if address not in self.outgoing)
            self.parts[stage] |= {"made": made, "keeps_gradient": not kept.keys().isdisjoint(self.outgoing)}
            self.kept = None
        elif stage not in self.parts:  # no input needs a gradient: all of its backward is for the weights
            trained = any(parameter.requires_grad for parameter in self.chain.stages[stage].module.parameters())
            self.parts[stage] = {"saved": self.stages[stage]["inner"], "made": 0,
                                 "keeps_input": trained, "keeps_output": trained, "keeps_gradient": trained}


class Nodes:
    """The nodes of a stage's backward, by where they lead."""

    def __init__(self, root, entries):
        self.entries = set(entries)
        self.nexts = {}          # node: the nodes that it hands gradients to; keeps them all, so that each is one object
        self.to_input, self.to_weights = set(), set()
        for node in self.from_last_to_first(root):
            self.nexts[node] = following = self.after(node)
            if node in self.entries or any(one in self.to_input for one in following):
                self.to_input.add(node)
            if hasattr(node, "variable") or any(one in self.to_weights for one in following):
                self.to_weights.add(node)

    def from_last_to_first(self, root):
        """Each node after those that it leads to."""
        seen, stack = set(), [(root, False)]
        while stack:
            node, is_done = stack.pop()
            if is_done:
                yield node
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack.extend((one, False) for one in self.after(node))

    def after(self, node):
        return [] if node in self.entries else [one for one, _ in node.next_functions if one is not None]

    def all(self):
        return list(self.nexts)

    def making_weights(self):
        return [node for node in self.nexts if node in self.to_input
                and any(one in self.to_weights and one not in self.to_input for one in self.nexts[node])]

    def parameters_behind(self, node):
        """Those whose gradients the node leads to by nodes that lead to no input."""
        found, stack = {}, [one for one in self.nexts[node] if one in self.to_weights and one not in self.to_input]
        while stack:
            one = stack.pop()
            if hasattr(one, "variable"):
                found[id(one.variable)] = one.variable
            stack.extend(self.nexts[one])
        return list(found.values())

    def of_weights(self):
        return self.making_weights() + [node for node in self.nexts if node in self.to_weights and node not in self.to_input]


def saved_storages(nodes):
    """{address: bytes} of what the nodes have saved, as far as they show it."""
    found = {}
    for node in nodes:
        for tensors in held_by(node).values():
            found |= storage_bytes(tensors)
    return found
