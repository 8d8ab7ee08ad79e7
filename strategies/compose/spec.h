#pragma once
// The pass pipeline of the command line: `name(option=value, ...)` joined with `|`.

#include <compare>
#include <string>
#include <string_view>
#include <vector>

#include "sim/io/input_error.h"
#include "strategies/api/pass.h"

namespace plimsoll {

/// A pass pipeline that has been understood, and the text that it was read from: what outputs call it, and whether two
/// are the same.
struct Pipeline {
  std::string text;
  std::vector<Pass> passes;

  friend bool operator==(const Pipeline& a, const Pipeline& b) { return a.text == b.text; }
  friend auto operator<=>(const Pipeline& a, const Pipeline& b) { return a.text <=> b.text; }
};

/// What planning by a pipeline complains of, with the place of the pass whose name it begins with, or of the option of
/// that pass which it quotes, as `where:1:column: `; as it is where it begins with no pass's name.
InputError placed(const InputError& complaint, std::string_view spec, std::string_view where);

/// The passes of a pipeline that change the problem: transforms at its head, what has its backwards split, what cuts a
/// graph into a chain, and what packs saved values, which chains then list one by one; none where the text does not
/// begin with a strategy.
std::vector<Pass> changes_of(std::string_view spec, std::string_view where);

/// Throws InputError, located as `where:1:column`, for what is malformed, unknown or out of range, and for passes that
/// cannot follow each other.
std::vector<Pass> parse_spec(std::string_view spec, std::string_view where);

/// The same with its text.
Pipeline parse_pipeline(std::string text, std::string_view where);

}  // namespace plimsoll
