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

/// What runs have in common that do the same work on the same devices by plans of their own: model, platform, samples
/// of an iteration, optimizer. Plans differ in their strategies and sizes of micro-batches, and in the vocabulary,
/// which Megatron-LM pads to a multiple of 128 a tensor rank.
struct SharedWork {
  std::string model;  ///< its reference, with each number, of one sample and a vocabulary as padded for 16 tensor ranks
  std::string platform, efficiency;
  std::uint32_t samples = 0;  ///< of an iteration; where a model's own are not known, its micro-batches
  Optimizer optimizer{};
  States states{};
  UpdateKernels update_kernels{};
  Gradients gradients{};

  friend bool operator==(const SharedWork&, const SharedWork&) = default;
};
SharedWork shared_work(const TruthRow&);

/// Runs of the same work, predicted and measured.
struct PlanOrder {
  std::string name;  ///< what names of its runs begin with, samples and platform
  std::vector<const TruthRow*> rows;
  std::optional<double> tau;          ///< Kendall's tau-b; unset where all predictions or all measurements are equal
  const TruthRow* taken = nullptr;    ///< predicted as the fastest; of equals the slowest as measured
  const TruthRow* fastest = nullptr;  ///< as measured
  double regret = 0;                  ///< measured time of `taken` over that of `fastest`, less 1
};

/// Throws where fewer than two runs are given.
PlanOrder plan_order(std::vector<const TruthRow*> rows);

/// Of all works with two predicted runs or more, in the order of their first ones.
std::vector<PlanOrder> plan_orders(std::span<const TruthRow> rows);

/// Predicts runs by worker processes: whole and by rooflines, or by every factor. In the order of the file, with those
/// that are not expressed. Nothing where it was interrupted.
std::optional<std::vector<TruthRow>> truth_of(std::span<const MeasuredGroup> groups, bool every_factor,
                                              std::size_t jobs);

}  // namespace plimsoll
