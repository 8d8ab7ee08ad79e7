#pragma once
// Evaluations between iterations as the command line and experiments ask for them: `every=100,batches=50,samples=16`.

#include <optional>
#include <string>
#include <string_view>

#include "sim/core/evaluation.h"
#include "sim/io/quantity.h"

namespace plimsoll {

/// What the words ask for, or what is wrong with them.
Parsed<Evaluation> read_evaluation(std::string_view text);

/// The same; throws InputError of that option. Nothing of no words.
std::optional<Evaluation> understood_evaluation(std::string_view option, std::string_view text);

/// As it is read, the defaults too.
std::string written(const Evaluation&);

}  // namespace plimsoll
