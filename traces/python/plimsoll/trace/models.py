"""Models to measure: built-in ones, which are cut into stages by hand where no other cuts are asked for, and those of a user's file."""

import dataclasses
import importlib
import inspect
import os

import torch
from plimsoll.torch.stages import is_in_a_row
from plimsoll.torch.versions import autocast_for, why_missing, why_no_autocast, why_no_fused_attention
from torch import nn
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from .cuts import chain_of_cuts, chain_of_modules
from .errors import UsageError, first_line
from .gpt import gpt_stages
from .storages import map_tensors
from .user_code import load_file, look_first_in

CLASSES = 1000
IMAGE_MODELS = ("resnet18", "resnet50", "resnet101", "vgg16", "densenet121")
BUILT_IN = ("mlp", "gpt") + IMAGE_MODELS


@dataclasses.dataclass
class Subject:
    """What is to be measured, before it is cut. `pairs`: stages by hand, (name, module), where there are such."""

    name: str
    description: str
    model: object  # an nn.Module, or a list of (name, module) in a row
    loss: object   # function of (outputs, targets), or None: the model makes its own
    input: object  # what the model is called with
    targets: object = None
    pairs: list = None


def refuse_missing(options):
    """What is asked for and not there."""
    for what, why in ((f"--device {options.device}", why_missing(options.device)),
                      (f"--amp {options.amp}", options.amp and why_no_autocast(options.device, options.amp)),
                      ("--attention fused", getattr(options, "attention", None) == "fused" and why_no_fused_attention())):
        if why:
            raise UsageError(f"{what}{'' if why.startswith(('needs', 'on ')) else ':'} {why}")


def chain_for(options):
    subject = subject_for(options)
    if not getattr(options, "graph", True):
        refuse_kept_weights(subject.model)
    precision = autocast_for(options.device, options.amp)
    if subject.pairs is not None and options.stages is None and not options.compile:
        return chain_of_modules(subject, precision)
    return chain_of_cuts(subject, options.stages or (None if subject.pairs is not None else "auto"), precision, options.compile)


def subject_for(options):
    """On the device, in the precision, in training mode."""
    if options.model in IMAGE_MODELS:
        subject = image_subject(options)
    elif options.model == "gpt":
        subject = gpt_subject(options)
    elif options.model == "mlp":
        subject = mlp_subject(options)
    else:
        subject = user_subject(options)
    place(subject, options)
    return subject


def refuse_kept_weights(model):
    """A module that makes its weight in a hook holds it from one run to the next: bytes that come and go with no stage."""
    modules = model.named_modules() if isinstance(model, nn.Module) else [
        (f"{name}.{inner}".rstrip("."), module) for name, outer in model for inner, module in outer.named_modules()]
    for path, module in modules:
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, (WeightNorm, SpectralNorm)):
                raise UsageError(f"module '{path}' makes its weight in a hook ({type(hook).__name__}) and holds it from run to run, where no stage of a "
                                 "chain counts it: use a parametrization (torch.nn.utils.parametrize), or --graph")


def place(subject, options):
    """On the device, in the precision, in training mode."""
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    for module in [subject.model] if isinstance(subject.model, nn.Module) else [module for _, module in subject.model]:
        module.to(device=options.device, dtype=dtype).train()
    on_device = lambda t: t.to(device=options.device, dtype=dtype if t.is_floating_point() else t.dtype)
    subject.input, subject.targets = map_tensors(subject.input, on_device), map_tensors(subject.targets, on_device)


def cross_entropy(outputs, targets):
    return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def mean_square(outputs, _):
    return outputs.pow(2).mean()


# --- images ---------------------------------------------------------------------------------------------------------

def image_subject(options):
    try:
        import torchvision
    except ImportError as error:
        raise UsageError(f"--model {options.model} needs torchvision, which is not installed") from error
    torch.manual_seed(options.seed)
    network = getattr(torchvision.models, options.model)(weights=None)
    split = {"resnet": resnet_stages, "vgg": vgg_stages, "densenet": densenet_stages}
    pairs = split[options.model.rstrip("0123456789")](network)
    target = torch.randint(CLASSES, (options.batch,))
    shape = (options.batch, 3, options.image_size, options.image_size)
    return Subject(f"{options.model}_b{options.batch}", f"torchvision {options.model}, input {list(shape)}, {CLASSES} classes", network,
                   cross_entropy, torch.randn(shape), target, pairs)


def resnet_stages(network):
    stages = [("stem", nn.Sequential(network.conv1, network.bn1, network.relu, network.maxpool))]
    for name in ("layer1", "layer2", "layer3", "layer4"):
        stages += [(f"{name}.{i}", block) for i, block in enumerate(getattr(network, name))]
    return stages + [("head", nn.Sequential(network.avgpool, nn.Flatten(1), network.fc))]


def vgg_stages(network):
    """Each convolution or linear layer with what follows it, so that no stage begins with an in-place ReLU."""
    layers = list(network.features) + [network.avgpool, nn.Flatten(1)] + list(network.classifier)
    stages = []
    for layer in layers:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            kind = "conv" if isinstance(layer, nn.Conv2d) else "linear"
            stages.append((f"{kind}{sum(name.startswith(kind) for name, _ in stages)}", []))
        stages[-1][1].append(layer)
    return [(name, nn.Sequential(*parts)) for name, parts in stages]


class Concatenated(nn.Module):
    """A DenseNet layer as a chain stage: its features so far, and the new ones behind them.

    torchvision keeps a list and concatenates it in every layer; handed on as one tensor it is the same mathematics.
    """

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        layer = self.layer
        narrow = layer.conv1(layer.relu1(layer.norm1(x)))
        return torch.cat([x, layer.conv2(layer.relu2(layer.norm2(narrow)))], 1)


def densenet_stages(network):
    features = network.features
    stages = [("stem", nn.Sequential(features.conv0, features.norm0, features.relu0, features.pool0))]
    for name, block in features.named_children():
        if name.startswith("denseblock"):
            stages += [(f"{name}.{i}", Concatenated(layer)) for i, layer in enumerate(block.values())]
        elif name.startswith("transition"):
            stages.append((name, block))
    head = nn.Sequential(features.norm5, nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(1), network.classifier)
    return stages + [("head", head)]


# --- language, and a network small enough for sums by hand ---------------------------------------------------------------

def gpt_subject(options):
    if options.width % options.heads:
        raise UsageError(f"--width {options.width} is not a multiple of --heads {options.heads}")
    torch.manual_seed(options.seed)
    pairs = gpt_stages(options.layers, options.width, options.heads, options.sequence, options.vocabulary,
                       options.dropout, options.attention == "fused", not options.untied)
    tokens = torch.randint(options.vocabulary, (options.batch, options.sequence))
    target = torch.randint(options.vocabulary, (options.batch, options.sequence))
    description = (f"GPT, {options.layers} layers, width {options.width}, {options.heads} heads, vocabulary {options.vocabulary}, "
                   f"{options.sequence} tokens, batch {options.batch}, dropout {options.dropout}, {options.attention} attention, "
                   f"{'untied' if options.untied else 'tied'} embedding")
    return Subject(f"gpt{options.layers}_w{options.width}_t{options.sequence}_b{options.batch}", description, pairs, cross_entropy,
                   tokens, target, pairs)


def mlp_subject(options):
    torch.manual_seed(options.seed)
    pairs = [(f"layer{i}", nn.Sequential(nn.Linear(options.width, options.width), nn.ReLU())) for i in range(options.layers)]
    return Subject(f"mlp{options.layers}_w{options.width}_b{options.batch}",
                   f"{options.layers} linear layers with ReLU, width {options.width}, batch {options.batch}", pairs, mean_square,
                   torch.randn(options.batch, options.width), None, pairs)


# --- a user's own -----------------------------------------------------------------------------------------------------

def user_subject(options):
    """`file.py:name` or `module:name` names an nn.Module, or a function that returns one or a tuple (model, loss, input) or
    (model, loss, input, targets); model may be a list of modules or of (name, module)."""
    thing = named_thing(options.model)
    torch.manual_seed(options.seed)
    if not isinstance(thing, nn.Module) and callable(thing):
        thing_of, wants_batch = thing, "batch" in inspect.signature(thing).parameters
        arguments = {"batch": options.batch} if wants_batch else {}
        thing = load(options.model, lambda: thing_of(**arguments))
    if isinstance(thing, tuple) and len(thing) not in (3, 4):
        raise UsageError(f"--model {options.model}: expected (model, loss, input) or (model, loss, input, targets), found a tuple of "
                         f"{len(thing)}")
    model, loss, example, targets = thing + (None,) * (4 - len(thing)) if isinstance(thing, tuple) else (thing, None, None, None)
    has_targets = isinstance(thing, tuple) and len(thing) == 4
    pairs = None if isinstance(model, nn.Module) and not is_in_a_row(model) else named_modules_of(model, options.model)
    example = example if example is not None else input_of_shape(options)
    if loss is not None and not has_targets:
        own, loss = loss, lambda outputs, _: own(outputs)
    name = options.model.split(":")[-1]
    return Subject(name, f"user's {options.model}", model if isinstance(model, nn.Module) else pairs, loss, example, targets, pairs)


def named_thing(where):
    place, separator, name = where.rpartition(":")
    if not separator:
        raise UsageError(f"--model {where}: unknown; built in are {', '.join(BUILT_IN)}; your own is file.py:name or module:name")
    if place.endswith(".py"):
        if not os.path.isfile(place):
            raise UsageError(f"--model {where}: no file {place}")
        module = load(where, lambda: load_file(place))
    else:
        look_first_in(os.getcwd())
        module = load(where, lambda: importlib.import_module(place))
    if not hasattr(module, name):
        raise UsageError(f"--model {where}: {place} has no '{name}'")
    return getattr(module, name)


def load(where, action):
    """What the user's own code raises is the user's."""
    try:
        return action()
    except Exception as error:
        raise UsageError(f"--model {where}: {first_line(error)}") from error


def input_of_shape(options):
    if options.input_shape is None:
        raise UsageError(f"--model {options.model}: returns no input, so --input-shape is needed, e.g. --input-shape 8,3,224,224")
    return torch.randn(options.input_shape)


def named_modules_of(stages, where):
    if isinstance(stages, nn.Sequential):
        return list(stages._modules.items())  # named_children leaves out what stands there a second time
    if not isinstance(stages, (list, tuple)):
        raise UsageError(f"--model {where}: expected an nn.Module or a list of modules, found {type(stages).__name__}")
    pairs = [item if isinstance(item, tuple) else (f"stage{i}", item) for i, item in enumerate(stages)]
    for name, module in pairs:
        if not isinstance(module, nn.Module):
            raise UsageError(f"--model {where}: stage '{name}' is not an nn.Module but {type(module).__name__}")
    return pairs
