#pragma once
// Graphs of known image classifiers as eager PyTorch trains them, with shapes, flops and bytes but no times:
// `resnet50:batch=64`, `deit_b:batch=128,size=224`, `resmlp_s24`. They keep for the backward what PyTorch keeps. In
// fp32, tf32 or, those of convolutions, under torch.autocast (`dtype=amp`).

#include <string>
#include <string_view>
#include <vector>

#include "sim/core/graph.h"
#include "sim/io/reference_options.h"

namespace plimsoll {

/// Whether a trace reference means one of them.
bool is_framework_graph(std::string_view reference);

/// The graph of a reference such as `resnet18:batch=256`; throws where it is wrong.
Graph framework_graph(std::string_view reference);

/// The whole numbers of such a reference; throws where it is wrong. None of any other.
std::vector<ReferenceNumber> framework_numbers(std::string_view reference);

/// One line of help a model: name, keys and defaults.
std::vector<std::string> framework_help();

/// What references begin with.
std::vector<std::string> framework_names();

}  // namespace plimsoll
