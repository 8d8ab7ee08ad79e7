#pragma once
// An explanation for people, and for programs.

#include <string>

#include "experiments/explain/explanation.h"
#include "sim/io/json/json.h"

namespace plimsoll {

std::string text_of(const Explanation&, const AnsweredQuestion&);

/// Keys as experiments/README.md has them.
Json to_json(const Explanation&, const AnsweredQuestion&);

}  // namespace plimsoll
