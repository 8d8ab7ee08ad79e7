"""Chains to measure: built-in models, cut into stages by hand, and models from a user's file."""

import importlib
import importlib.util
import inspect
import os
import sys

import torch
from torch import nn

from .chain import Chain, CrossEntropy, Loss, MeanSquare, Stage
from .errors import UsageError
from .gpt import gpt_stages
from .storages import map_tensors

CLASSES = 1000
IMAGE_MODELS = ("resnet18", "resnet50", "resnet101", "vgg16", "densenet121")
BUILT_IN = ("mlp", "gpt") + IMAGE_MODELS


def chain_for(options):
    if options.model in IMAGE_MODELS:
        chain = image_chain(options)
    elif options.model == "gpt":
        chain = gpt_chain(options)
    elif options.model == "mlp":
        chain = mlp_chain(options)
    else:
        chain = user_chain(options)
    return placed(chain, options)


def placed(chain, options):
    """On the device, in the precision, in training mode."""
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    chain.modules().to(device=options.device, dtype=dtype).train()
    to_input = lambda t: t.to(device=options.device, dtype=dtype if t.is_floating_point() else t.dtype)
    chain.input = map_tensors(chain.input, to_input)
    return chain


def stages_of(pairs):
    return [Stage(name, module) for name, module in pairs]


# --- images ---------------------------------------------------------------------------------------------------------

def image_chain(options):
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
    return Chain(f"{options.model}_b{options.batch}", stages_of(pairs + [("loss", CrossEntropy(target))]),
                 torch.randn(shape), f"torchvision {options.model}, input {list(shape)}, {CLASSES} classes")


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

def gpt_chain(options):
    if options.width % options.heads:
        raise UsageError(f"--width {options.width} is no multiple of --heads {options.heads}")
    if options.attention == "fused" and not hasattr(nn.functional, "scaled_dot_product_attention"):
        raise UsageError(f"--attention fused needs torch 2, this is {torch.__version__}")
    torch.manual_seed(options.seed)
    pairs = gpt_stages(options.layers, options.width, options.heads, options.sequence, options.vocabulary,
                       options.dropout, options.attention == "fused", not options.untied)
    tokens = torch.randint(options.vocabulary, (options.batch, options.sequence))
    target = torch.randint(options.vocabulary, (options.batch, options.sequence))
    description = (f"GPT, {options.layers} layers, width {options.width}, {options.heads} heads, vocabulary {options.vocabulary}, "
                   f"{options.sequence} tokens, batch {options.batch}, dropout {options.dropout}, {options.attention} attention, "
                   f"{'untied' if options.untied else 'tied'} embedding")
    return Chain(f"gpt{options.layers}_w{options.width}_t{options.sequence}_b{options.batch}",
                 stages_of(pairs + [("loss", CrossEntropy(target))]), tokens, description)


def mlp_chain(options):
    torch.manual_seed(options.seed)
    pairs = [(f"layer{i}", nn.Sequential(nn.Linear(options.width, options.width), nn.ReLU())) for i in range(options.layers)]
    return Chain(f"mlp{options.layers}_w{options.width}_b{options.batch}", stages_of(pairs + [("loss", MeanSquare())]),
                 torch.randn(options.batch, options.width),
                 f"{options.layers} linear layers with ReLU, width {options.width}, batch {options.batch}")


# --- a user's own -----------------------------------------------------------------------------------------------------

def user_chain(options):
    """`file.py:name` or `module:name` names an nn.Sequential, or a function that returns one or a tuple
    (stages, loss, input); stages is an nn.Sequential or a list of modules or of (name, module)."""
    thing = named_thing(options.model)
    torch.manual_seed(options.seed)
    if not isinstance(thing, nn.Module) and callable(thing):
        wants_batch = "batch" in inspect.signature(thing).parameters
        thing = thing(batch=options.batch) if wants_batch else thing()
    if isinstance(thing, tuple) and len(thing) != 3:
        raise UsageError(f"--model {options.model}: expected (stages, loss, input), found a tuple of {len(thing)}")
    stages, loss, example = thing if isinstance(thing, tuple) else (thing, None, None)
    pairs = named_modules_of(stages, options.model)
    example = example if example is not None else input_of_shape(options)
    loss = loss if loss is not None else MeanSquare()
    loss = loss if isinstance(loss, nn.Module) else Loss(loss)
    name = options.model.split(":")[-1]
    return Chain(name, stages_of(pairs + [("loss", loss)]), example, f"user's {options.model}")


def named_thing(where):
    place, separator, name = where.rpartition(":")
    if not separator:
        raise UsageError(f"--model {where}: unknown; built in are {', '.join(BUILT_IN)}; your own is file.py:name or module:name")
    if place.endswith(".py"):
        if not os.path.isfile(place):
            raise UsageError(f"--model {where}: no file {place}")
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        spec = importlib.util.spec_from_file_location("plimsoll_user_model", place)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, os.getcwd())
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise UsageError(f"--model {where}: {error}") from error
    if not hasattr(module, name):
        raise UsageError(f"--model {where}: {place} has no '{name}'")
    return getattr(module, name)


def input_of_shape(options):
    if options.input_shape is None:
        raise UsageError(f"--model {options.model}: returns no input, so --input-shape is needed, e.g. --input-shape 8,3,224,224")
    return torch.randn(options.input_shape)


def named_modules_of(stages, where):
    if isinstance(stages, nn.Sequential):
        return list(stages.named_children())
    if not isinstance(stages, (list, tuple)):
        raise UsageError(f"--model {where}: expected an nn.Sequential or a list of modules, found {type(stages).__name__}")
    pairs = [item if isinstance(item, tuple) else (f"stage{i}", item) for i, item in enumerate(stages)]
    for name, module in pairs:
        if not isinstance(module, nn.Module):
            raise UsageError(f"--model {where}: stage '{name}' is no nn.Module but {type(module).__name__}")
    return pairs
