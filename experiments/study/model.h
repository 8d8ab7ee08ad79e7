#pragma once
// What --trace takes: a trace as traces/ knows it, or a network that validate/ can run.

#include <string>
#include <vector>

#include "sim/core/evaluation.h"
#include "sim/io/reference_options.h"
#include "traces/trace_file.h"

namespace plimsoll {

/// A path, the name of a shipped trace, a synthetic chain or graph such as `uniform:16`, or a network such as
/// `mlp:layers=8`.
Trace load_model(const std::string& reference);

/// The whole numbers that a reference gives to what makes its model, such as layers; none where it names a file. Throws
/// where it is wrong.
std::vector<ReferenceNumber> model_numbers(const std::string& reference);

/// Whether a reference makes its model by rule, instead of naming a file.
bool is_made_by_rule(const std::string& reference);

/// The evaluation with the size of its batch in micro-batches of the reference's model; throws InputError where samples
/// are asked for, and how many a micro-batch has is not known.
Evaluation sized_for(const std::string& reference, Evaluation);

}  // namespace plimsoll
