#pragma once
// A plan as other programs write it: names of ops in the order in which they run, and marks for what is copied and
// freed (experiments/memplanlib/README.md). Its schedule, with the line that each step is from.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/core/schedule.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// A text that begins no JSON object is one.
bool is_op_list(std::string_view text);

/// What stands above the list; what it does not say is empty.
struct OpListHead {
  std::string trace, platform;
  std::optional<Bytes> budget;
  std::size_t end = 0;      ///< of the text: where the list begins
  std::uint32_t lines = 0;  ///< above it
};
/// A trace or platform that begins with a dot is a path from the file's folder. Throws InputError.
OpListHead read_op_list_head(std::string_view text, const std::string& file);

/// Why a list is no plan, and in which line; 0: in none of them.
struct IllegalLine {
  std::uint32_t line = 0;
  std::string what;
};

struct ListedPlan {
  Schedule schedule;
  std::vector<std::uint32_t> lines;  ///< by step; 0: of none, as updates that are not listed
};

/// On the platform's first device. What is not freed is freed after its last use, a run saves what a later op reads of
/// it, and values go to the host. Throws InputError for names that the problem does not have.
std::variant<ListedPlan, IllegalLine> read_op_list(const Problem&, std::string_view text, const std::string& file);

}  // namespace plimsoll
