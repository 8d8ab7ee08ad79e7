#pragma once
// What a point's answer depends on, as one word: the same in every experiment and folder that asks it.

#include <cstddef>
#include <string>
#include <string_view>

#include "experiments/sweep/sweep_points.h"
#include "sim/io/json/json.h"

namespace plimsoll {

/// XXH3-128 of these bytes, in hexadecimal.
std::string digest_of(std::string_view bytes);

class PointKeys {
 public:
  /// `digests`: of the files that the experiment reads.
  PointKeys(const Experiment&, const Json& digests);

  /// XXH3-128 of the build, the names and contents of trace, platform and the strategy's files, everything else that is
  /// asked, and the budget: the `place`-th of its case, which these facts are of.
  std::string of(std::size_t group, std::size_t place, const CaseFacts&) const;

 private:
  const Experiment& experiment_;
  const Json& digests_;
  Json settings_;  ///< what all points of the experiment share
};

/// Whether files of a record's trace, platform and strategy have the same contents in both lists of digests.
bool same_files_of(const Json& record, const Json& digests, const Json& others);

}  // namespace plimsoll
