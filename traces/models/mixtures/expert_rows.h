#pragma once
// How many rows each expert of a layer gets where tokens are not shared out equally.

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll {

struct ExpertLoad {
  std::int64_t tokens = 1;  ///< each passes `top_k` experts, each of them once
  std::int64_t top_k = 1, experts = 1;
  double skew = 0;  ///< the i-th busiest expert gets rows in proportion to i^-skew (Zipf); 0: equal rows
  std::uint64_t seed = 1, layer = 0;  ///< which experts are the busy ones
};

/// Rows by expert. No token is dropped, so that they sum up to tokens x top_k, and no expert has more than the tokens:
/// what the law gives it beyond goes to the others.
std::vector<std::int64_t> expert_rows(const ExpertLoad&);

/// Separated by blanks, as the attribute `expert_rows` of an op states them.
std::string expert_rows_text(const ExpertLoad&);

}  // namespace plimsoll
