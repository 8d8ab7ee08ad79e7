"""Networks of torchvision cut into plain chains (one tensor at each boundary), for predicted_peaks.py.

  /usr/bin/python3 traces/export_pytorch.py --model traces/peak_networks.py:mobilenet_v2 --batch 4 -o mobilenet_v2.json
"""

import torch
import torchvision
from torch import nn

CLASSES = 1000


def chain(stages, batch, pixels=96):
    torch.manual_seed(1)
    target = torch.randint(CLASSES, (batch,))
    return stages, lambda y: nn.functional.cross_entropy(y, target), torch.randn(batch, 3, pixels, pixels)


def network(name, **options):
    torch.manual_seed(0)
    return getattr(torchvision.models, name)(weights=None, **options)


def head(*modules):
    return [("head", nn.Sequential(*modules))]


def features_and_head(name, batch, pool, pixels=96):
    made = network(name)
    stages = [(f"features.{i}", layer) for i, layer in enumerate(made.features)]
    return chain(stages + head(pool(made), nn.Flatten(1), made.classifier), batch, pixels)


def begins_in_place(layer):
    return getattr(layer, "inplace", False) or isinstance(layer, (nn.MaxPool2d, nn.BatchNorm2d))


def joined(layers):
    """Layers one by one, those that would overwrite their input with the one before."""
    groups = []
    for layer in layers:
        if groups and begins_in_place(layer):
            groups[-1].append(layer)
        else:
            groups.append([layer])
    return [(f"features.{i}", nn.Sequential(*group)) for i, group in enumerate(groups)]


def alexnet(batch=4):
    made = network("alexnet")
    return chain(joined(made.features) + head(made.avgpool, nn.Flatten(1), made.classifier), batch)


def vgg11_bn(batch=4):
    made = network("vgg11_bn")
    return chain(joined(made.features) + head(made.avgpool, nn.Flatten(1), made.classifier), batch)


def squeezenet1_1(batch=4):
    made = network("squeezenet1_1")
    return chain(joined(made.features) + head(*made.classifier, nn.Flatten(1)), batch)


def mobilenet_v2(batch=4):
    return features_and_head("mobilenet_v2", batch, lambda made: nn.AdaptiveAvgPool2d(1))


def mobilenet_v3_large(batch=4):
    return features_and_head("mobilenet_v3_large", batch, lambda made: made.avgpool)


def efficientnet_b0(batch=4):
    return features_and_head("efficientnet_b0", batch, lambda made: made.avgpool)


def convnext_tiny(batch=2):
    made = network("convnext_tiny")
    stages = [(f"features.{i}", layer) for i, layer in enumerate(made.features)]
    return chain(stages + head(made.avgpool, made.classifier), batch)


def mnasnet1_0(batch=4):
    made = network("mnasnet1_0")
    return chain(joined(made.layers) + head(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), made.classifier), batch)


def regnet_y_400mf(batch=4):
    made = network("regnet_y_400mf")
    blocks = [(f"{name}.{i}", block) for name, group in made.trunk_output.named_children() for i, block in enumerate(group)]
    return chain([("stem", made.stem)] + blocks + head(made.avgpool, nn.Flatten(1), made.fc), batch)


def shufflenet_v2_x1_0(batch=4):
    made = network("shufflenet_v2_x1_0")
    blocks = [(f"stage{n}.{i}", block) for n in (2, 3, 4) for i, block in enumerate(getattr(made, f"stage{n}"))]
    return chain([("conv1", made.conv1), ("maxpool", made.maxpool)] + blocks + [("conv5", made.conv5)]
                 + head(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), made.fc), batch)


def googlenet(batch=4):
    made = network("googlenet", aux_logits=False, init_weights=False)
    names = ("conv1", "maxpool1", "conv2", "conv3", "maxpool2", "inception3a", "inception3b", "maxpool3", "inception4a",
             "inception4b", "inception4c", "inception4d", "inception4e", "maxpool4", "inception5a", "inception5b")
    return chain([(name, getattr(made, name)) for name in names]
                 + head(made.avgpool, nn.Flatten(1), made.dropout, made.fc), batch)


def inception_v3(batch=4):
    made = network("inception_v3", aux_logits=False, init_weights=False)
    names = ("Conv2d_1a_3x3", "Conv2d_2a_3x3", "Conv2d_2b_3x3", "maxpool1", "Conv2d_3b_1x1", "Conv2d_4a_3x3", "maxpool2",
             "Mixed_5b", "Mixed_5c", "Mixed_5d", "Mixed_6a", "Mixed_6b", "Mixed_6c", "Mixed_6d", "Mixed_6e", "Mixed_7a",
             "Mixed_7b", "Mixed_7c")
    return chain([(name, getattr(made, name)) for name in names]
                 + head(made.avgpool, made.dropout, nn.Flatten(1), made.fc), batch, 139)


def wide_resnet50_2(batch=2):
    made = network("wide_resnet50_2")
    blocks = [(f"layer{n}.{i}", block) for n in (1, 2, 3, 4) for i, block in enumerate(getattr(made, f"layer{n}"))]
    return chain([("stem", nn.Sequential(made.conv1, made.bn1, made.relu, made.maxpool))] + blocks
                 + head(made.avgpool, nn.Flatten(1), made.fc), batch)
