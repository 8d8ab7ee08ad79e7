#pragma once
// Schedule -> measured Timeline: judged first, then run.

#include <variant>

#include "validate/backend.h"

namespace plimsoll {

/// Runs a schedule. What check() rejects is refused before anything runs, and so are addresses that wrong_address()
/// does.
std::variant<Replayed, ReplayFailure> replay(const Problem&, const Schedule&, RunnableNetwork&, const ReplayOptions&);

}  // namespace plimsoll
