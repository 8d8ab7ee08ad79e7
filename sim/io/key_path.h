#pragma once
// Where in a document a value stands: `stages[3].saved_bytes`, as a list from the value up to the root.

#include <cstddef>
#include <string>
#include <string_view>

namespace plimsoll {

/// One part of the path, on the stack of whoever walks the document; the root has no parent and no key.
struct KeyPath {
  const KeyPath* parent = nullptr;
  std::string_view key;   ///< of a field; empty: an element
  std::size_t index = 0;  ///< of an element
};

std::string to_string(const KeyPath&);

/// The path of an element or a field below another: `below("ops", 3, "inputs")` is `ops[3].inputs`.
std::string below(std::string_view list, std::size_t index, std::string_view key = "");

}  // namespace plimsoll
