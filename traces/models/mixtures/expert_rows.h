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
  /// An expert takes no more rows than so many times the mean, in whole rows rounded up; 0: all that come.
  double capacity = 0;
  bool is_padded = false;  ///< to that number, whatever comes
};

/// Rows by expert before any limit. No token is dropped, so that they sum up to tokens x top_k, and no expert has more
/// than the tokens: what the law gives it beyond goes to the others.
std::vector<std::int64_t> expert_rows(const ExpertLoad&);

/// Rows that an expert computes at most (Lepikhin et al., "GShard", 2021, section 2.2; rounded as Megatron-LM does).
std::int64_t row_limit(const ExpertLoad&);

/// Rows by expert that are computed: those above the limit are dropped, or all experts have as many as it says.
std::vector<std::int64_t> computed_rows(const ExpertLoad&);

/// Those, separated by blanks, as the attribute `expert_rows` of an op states them.
std::string computed_rows_text(const ExpertLoad&);

}  // namespace plimsoll
