#pragma once
// How far the numbers of a sweep are from those that its paper, or an earlier run of ours, came to.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "experiments/published/expected_numbers.h"
#include "experiments/sweep/sweep_store.h"
#include "sim/io/json/json.h"

namespace plimsoll {

enum class Agreement : std::uint8_t {
  agrees,       ///< with the published number, as far as is allowed
  as_recorded,  ///< nothing is published
  differs,      ///< from the published number, and the file says why
  not_here,     ///< the sweep does not ask for it, and the file says what does
  off,          ///< by more than is allowed, from either
  missing,      ///< the sweep has no such number
};

template <>
struct Names<Agreement> {
  static constexpr std::array all{
      std::pair{Agreement::agrees, "agrees"},   std::pair{Agreement::as_recorded, "as recorded"},
      std::pair{Agreement::differs, "differs"}, std::pair{Agreement::not_here, "not here"},
      std::pair{Agreement::off, "off"},         std::pair{Agreement::missing, "missing"}};
};

struct Difference {
  const ExpectedGroup* group = nullptr;
  const ExpectedRow* row = nullptr;
  std::optional<double> ours;
  Agreement verdict = Agreement::missing;

  /// Whether the program has not come to what it should.
  bool is_wrong() const { return verdict == Agreement::off || verdict == Agreement::missing; }
  /// From the published number, or the recorded one where nothing is published; unset: there is none, or it is 0.
  std::optional<double> share() const;
};

/// A row each, in the order of the file.
std::vector<Difference> differences_of(const ExpectedNumbers&, const SweepContents&);

/// As Markdown.
std::string differences_table(std::span<const Difference>);
std::string differences_csv(std::span<const Difference>);
Json differences_json(const ExpectedNumbers&, std::span<const Difference>);

/// What experiments/plot_paper.py draws.
Json figure_json(const ExpectedNumbers&, std::span<const Difference>, const SweepContents&);

}  // namespace plimsoll
