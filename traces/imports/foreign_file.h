#pragma once
// What a file of another program is, by how it begins: for who takes it for a trace.

#include <string>
#include <string_view>

namespace plimsoll {

/// `a timeline in Chrome's format: plimsoll import kineto FILE -o TRACE`; empty where the text may be a trace.
std::string foreign_hint(std::string_view text, std::string_view file);

}  // namespace plimsoll
