"""Which dimensions of which tensors are the same one, through every view.

A storage is a row of axes, the outermost first. A view's dimension is a run of them: a reshape puts several together,
another view takes one apart, and then every tensor that has this axis has it taken apart.
"""

import math


class Axis:
    """One of a set of axes that are known to be one."""

    def __init__(self, size):
        self.size = size
        self.same_as, self.parts = None, None
        self.other_than = set()

    def root(self):
        axis = self
        while axis.same_as is not None:
            axis = axis.same_as
        return axis

    def leaves(self):
        root = self.root()
        return [root] if root.parts is None else [leaf for part in root.parts for leaf in part.leaves()]

    def take_apart(self, outer):
        """Into `outer` times the rest."""
        self.parts = [Axis(outer), Axis(self.size // outer)]


def leaves_of(axes):
    return [leaf for axis in axes for leaf in axis.leaves()]


def differ(x, y):
    """Two axes of one size that must not be taken for one, such as the positions that ask and those that answer."""
    x.other_than.add(y)
    y.other_than.add(x)


def are_other(x, y):
    return any(other.root() is y for other in x.other_than) or any(other.root() is x for other in y.other_than)


def unite(x, y):
    y.same_as = x
    x.other_than |= y.other_than


def match(xs, ys, may_unite):
    """Makes two runs of axes one, as far as their sizes allow; pairs that may_unite forbids stay apart."""
    xs, ys = leaves_of(xs), leaves_of(ys)
    while xs and ys:
        x, y = xs[0].root(), ys[0].root()
        if x.parts or y.parts:  # taken apart a moment ago
            xs, ys = x.leaves() + xs[1:], y.leaves() + ys[1:]
        elif x is y or x.size == y.size:
            if x is not y and not are_other(x, y):
                unite(x, y) if may_unite(x, y) else differ(x, y)
            xs, ys = xs[1:], ys[1:]
        elif x.size % y.size == 0:
            x.take_apart(y.size)
        elif y.size % x.size == 0:
            y.take_apart(x.size)
        else:
            return


class Storage:
    """The axes of a storage: as its first tensor has them, if that is dense."""

    def __init__(self, tensor):
        dims = sorted((d for d in range(tensor.dim()) if tensor.shape[d] > 1), key=lambda d: -tensor.stride(d))
        dense = 1
        for d in reversed(dims):
            if tensor.stride(d) != dense:
                dims = []
                break
            dense *= tensor.shape[d]
        self.axes = [Axis(tensor.shape[d]) for d in dims]

    def leaves(self):
        return leaves_of(self.axes)

    def dim(self, size, stride):
        """The axes of a view's dimension; none for one that is only repeated, None where it is no whole run of axes."""
        if size == 1 or stride == 0:
            return []
        found, reached = [], 1
        for leaf in reversed(self.leaves()):
            reached = self.collect(leaf, size, stride, reached, found)
            if math.prod(axis.size for axis in found) == size:
                return found
        return None

    @staticmethod
    def collect(leaf, size, stride, reached, found):
        """Adds to `found` what of the leaf, whose stride is `reached`, is of the dimension; returns the next one's."""
        for part in Storage.cut(leaf, size, stride, reached, found):
            is_of_it = bool(found) or reached == stride
            if is_of_it and math.prod(axis.size for axis in found) < size:
                found.insert(0, part)
            reached *= part.size
        return reached

    @staticmethod
    def cut(leaf, size, stride, reached, found):
        """The leaf's parts, the innermost first: taken apart where the dimension begins or ends within it."""
        if reached < stride < reached * leaf.size and stride % reached == 0 and leaf.size % (stride // reached) == 0:
            leaf.take_apart(leaf.size // (stride // reached))
            inner, outer = leaf.parts[1], leaf.parts[0]
            return [inner] + Storage.cut(outer, size, stride, stride, found)
        have = math.prod(axis.size for axis in found)
        left = size // have if size % have == 0 else 0
        is_of_it = bool(found) or reached == stride
        if is_of_it and 1 < left < leaf.size and leaf.size % left == 0:
            leaf.take_apart(leaf.size // left)
            return [leaf.parts[1], leaf.parts[0]]
        return [leaf]

    def dims(self, tensor):
        return [self.dim(size, stride) for size, stride in zip(tensor.shape, tensor.stride())]
