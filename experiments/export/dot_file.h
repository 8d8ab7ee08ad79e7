#pragma once
// A graph in Graphviz's language, as `plimsoll import dot` reads it (traces/imports.md).

#include <string>
#include <string_view>

#include "sim/model/problem.h"

namespace plimsoll {

/// The problem's ops with the times of its first device, and an edge from the op that makes a value to each that reads
/// it, with the bytes of all such values. The language has no word for updates, inputs, optimizer states, workspaces
/// and what is saved: a comment says how much of these is left out.
std::string dot_text(const Problem&, std::string_view made_by);

}  // namespace plimsoll
