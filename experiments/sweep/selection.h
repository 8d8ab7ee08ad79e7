#pragma once
// Which combinations of an experiment's lists are asked: lists of `zip` advance together, and `exclude` leaves out what
// its patterns name.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "sim/io/json/json.h"
#include "sim/io/yaml_document.h"

namespace plimsoll {

/// The lists of an experiment that are combined, but for memory.
inline constexpr std::array<std::string_view, 5> combined_lists{"traces", "platforms", "micro_batches", "optimizer",
                                                                "strategies"};

/// For each of combined_lists its values as they are written.
using CombinedValues = std::array<std::vector<std::string>, combined_lists.size()>;

/// A value of each.
using Combination = std::array<std::string, combined_lists.size()>;

struct PointSelection {
  std::vector<std::vector<std::size_t>> zipped;  ///< lists (places in combined_lists) of one length, element by element
  std::vector<CombinedValues> excluded;          ///< patterns as of fnmatch(3); an empty list: any value

  bool is_everything() const { return zipped.empty() && excluded.empty(); }
  friend bool operator==(const PointSelection&, const PointSelection&) = default;
};

/// `zip` and `exclude` of an experiment file; what does not fit its lists is complained about once they are known.
std::vector<std::vector<std::size_t>> read_zip(const YamlCursor&);
std::vector<CombinedValues> read_exclusions(const YamlCursor&);

/// Why a selection does not suit these lists; empty: it does.
std::string complaint_of_zip(const PointSelection&, const CombinedValues&);

/// Of the patterns of an exclusion, why they leave nothing out; empty: they do.
std::string complaint_of_exclusion(const CombinedValues& patterns, const CombinedValues&);

/// Whether this combination of values of the lists is asked.
bool is_asked(const PointSelection&, const CombinedValues&, const Combination&);

/// As an experiment in JSON has them, under `zip` and `exclude`; written only where there are any.
void write_selection(const PointSelection&, Json& experiment);
PointSelection selection_of(const Json& experiment);
CombinedValues combined_values_of(const Json& experiment);

}  // namespace plimsoll
