"""Ranks of torch.distributed that train one model: what replicas and sharded parameters share."""

import hashlib
import json

import torch

from .errors import Refused


class Ranks:
    """group: ProcessGroup; None: all ranks. `what`: the option of `apply`, for messages."""

    def __init__(self, what, group):
        import torch.distributed as dist  # absent from some builds of torch
        if not dist.is_available() or not dist.is_initialized():
            raise Refused(f"{what}: torch.distributed is not initialized: call init_process_group before")
        self.what, self.dist, self.group = what, dist, group
        self.ranks = dist.get_world_size(group)
        if self.ranks < 1:
            raise Refused(f"{what}: rank {dist.get_rank()} is not in the group: only its ranks train the model")
        self.first = self.global_rank(0)
        self.exchanges = True

    def global_rank(self, rank):
        return rank if self.group is None else self.dist.get_global_rank(self.group, rank)

    def broadcast(self, tensors):
        """Those of the first rank go to all; of each dtype together."""
        kinds = {}
        for tensor in tensors:
            kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor.detach())
        for alike in kinds.values():
            flat = torch.cat([tensor.reshape(-1) for tensor in alike])
            self.dist.broadcast(flat, self.first, group=self.group)
            for tensor, piece in zip(alike, flat.split([tensor.numel() for tensor in alike])):
                tensor.copy_(piece.view(tensor.shape))

    def refuse_others(self, own, why):
        """`why`: what is said where another rank has other things than these."""
        digest = hashlib.sha256(json.dumps(own).encode()).hexdigest()
        found = [None] * self.ranks
        self.dist.all_gather_object(found, digest, group=self.group)
        for rank, other in enumerate(found):
            if other != found[0]:
                raise Refused(f"{self.what}: rank {rank} has {why}")

    def begin(self, model, *options):
        """Once: the same model everywhere, with the values of the first rank."""
        own = [[name, list(parameter.shape), str(parameter.dtype), parameter.requires_grad] for name, parameter in model.named_parameters()]
        own += [[name, list(tensor.shape), str(tensor.dtype)] for name, tensor in model.named_buffers()]
        self.refuse_others([own, *options], "other parameters, buffers, frozen ones or options than rank 0: all ranks train the same model")
        with torch.no_grad():
            self.broadcast([*model.parameters(), *model.buffers()])
