#pragma once
// How far simulated iterations are from measured ones: every run by efficiencies and by rooflines, and what each factor
// of the model brings.

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/truth/measured_runs.h"

namespace plimsoll {

/// What a prediction has of the model of times, each with all before it.
enum class TruthFactor : std::uint8_t {
  free_sends,   ///< a data sheet's rates, in pipelines that wait for nothing that they send
  rooflines,    ///< the same in pipelines as they are
  floors,       ///< the shortest kernel in place of launches
  products,     ///< measured tables and shares of products
  kernels,      ///< those of all other kernels
  collectives,  ///< measured tables within a node, and by these NCCL's rule over nodes
  network       ///< the measured share of a node's network: the whole model
};
inline constexpr std::size_t truth_factors = 7;
template <>
struct Names<TruthFactor> {
  static constexpr std::array all{
      std::pair{TruthFactor::free_sends, "free_sends"}, std::pair{TruthFactor::rooflines, "rooflines"},
      std::pair{TruthFactor::floors, "floors"},         std::pair{TruthFactor::products, "products"},
      std::pair{TruthFactor::kernels, "kernels"},       std::pair{TruthFactor::collectives, "collectives"},
      std::pair{TruthFactor::network, "network"}};
};

/// A run and what was predicted of it.
struct TruthRow {
  const MeasuredGroup* group = nullptr;
  const MeasuredRun* run = nullptr;
  std::array<std::optional<Seconds>, truth_factors> predicted;  ///< unset: not asked for
  std::optional<Bytes> peak;                                    ///< of the fullest device
  std::optional<Bytes> reserved;                                ///< there; unset: it was not measured
  std::optional<Seconds> low, high;                             ///< of the whole model; unset: there is no interval
  std::string reason;                                           ///< why nothing was predicted; empty: it was

  Seconds whole() const { return *predicted[truth_factors - 1]; }
  Seconds rooflines() const { return *predicted[static_cast<std::size_t>(TruthFactor::rooflines)]; }
  bool is_within() const { return low && *low <= *run->measured && *run->measured <= *high; }
  double error() const { return whole() / *run->measured - 1; }
  double error_of(TruthFactor factor) const {
    return *predicted[static_cast<std::size_t>(factor)] / *run->measured - 1;
  }
};

/// Of relative errors. `mean`, `median` and `worst` are of their sizes.
struct RelativeErrors {
  std::size_t runs = 0;
  double mean = 0, median = 0, worst = 0, with_signs = 0;
};
RelativeErrors relative_errors(std::span<const double> errors);

/// Runs that do the same work: whether predictions order them as measurements do (Kendall's tau-a; ties agree with
/// nothing and contradict nothing), and by how much the run that is predicted to be the fastest is slower than the
/// fastest.
struct ChosenRun {
  std::string choice;
  std::size_t runs = 0;
  double tau = 0, regret = 0;
};
ChosenRun chosen_run(std::string choice, std::span<const TruthRow* const> rows);

/// The same of all choices of two runs or more, in the order of their first runs.
std::vector<ChosenRun> chosen_runs(std::span<const TruthRow> rows);

/// Predicts runs by worker processes: whole and by rooflines, or by every factor. In the order of the file, with those
/// that are not expressed. Nothing where it was interrupted.
std::optional<std::vector<TruthRow>> truth_of(std::span<const MeasuredGroup> groups, bool every_factor,
                                              std::size_t jobs);

}  // namespace plimsoll
