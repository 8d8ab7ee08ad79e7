"""Nodes of autograd's graph, and the tensors that they hold until their backward. Hooks on saved tensors are not shown all of them: not the
numbers of products (the 0.3 of x * 0.3 is a tensor of 8 bytes, which torch 2 shows no hook), and not what a function written in Python keeps as
attributes of its ctx, beside save_for_backward."""

import torch

from .values import tensors_in


def nodes_behind(tensors):
    """Of the graph behind some tensors, each once."""
    found, stack = {}, [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    while stack:
        node = stack.pop()
        if node not in found:
            found[node] = None
            stack.extend(one for one, _ in node.next_functions if one is not None)
    return list(found)


def kept_in_ctx(node):
    """{attribute: what it is} of those with tensors inside; nodes of functions written in Python are their ctx."""
    return {name: value for name, value in getattr(node, "__dict__", {}).items() if tensors_in(value)}


def held_by(node):
    """{attribute: tensors}: what the node has saved, as far as it shows it, and what it keeps in its ctx."""
    names = [name for name in dir(node) if name.startswith("_saved_") or name == "saved_tensors"]
    found = {name: getattr(node, name) for name in names} | kept_in_ctx(node)
    return {name: tensors for name, tensors in ((name, tensors_in(value)) for name, value in found.items()) if tensors}

def node_of(parameter):
    """Where autograd adds to the parameter's gradient."""
    with torch.enable_grad():
        return parameter.view_as(parameter).grad_fn.next_functions[0][0]
