// The transform `galore`: Adam's states live in a space of `rank` rows or columns, which gradients of matrices are
// projected to; the space is found anew by a singular value decomposition every so many steps.
// Numbers that are kept for a matrix: 2 max r + min r, max and min its longer and shorter side.
// Source: Zhao, Zhang, Chen, Wang, Anandkumar, Tian, "GaLore: memory-efficient LLM training by gradient low-rank
// projection", ICML 2024, and its authors' program for what an update works in. Operations of the decomposition:
// Golub, Van Loan, "Matrix computations", 4th edition, figure 8.6.1 (R-SVD).

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <variant>

#include "sim/io/quantity.h"
#include "strategies/api/strategy.h"
#include "strategies/rematerialization/policies/policies.h"
#include "strategies/transforms/changed_states.h"

namespace plimsoll {
namespace {

struct GaloreOptions {
  std::int64_t rank = 4;
  std::int64_t every = 200;
  std::string matrices = "*";
  std::uint32_t bits = 32;
  bool refreshes = false;
};

struct ProjectedMatrix {
  std::int64_t longer, shorter, rank;

  std::int64_t numbers() const { return longer * shorter; }
  std::int64_t projected() const { return longer * rank; }
};

/// The projected gradient, its square's root and their quotient; the update twice, before and after it is scaled.
std::int64_t usual_workspace(const ProjectedMatrix& m) {
  return 3 * m.projected() + 2 * m.numbers();
}

/// A copy, which the decomposition overwrites, and U, S and V.
std::int64_t decomposition_workspace(const ProjectedMatrix& m) {
  return 2 * m.numbers() + m.shorter + m.shorter * m.shorter;
}

double decomposition_flops(const ProjectedMatrix& m) {
  const auto a = static_cast<double>(m.longer), b = static_cast<double>(m.shorter);
  return 6 * a * b * b + 20 * b * b * b;
}

/// To the space and back.
double projection_flops(const ProjectedMatrix& m) {
  return 4 * static_cast<double>(m.numbers()) * static_cast<double>(m.rank);
}

/// What the program moves op by op, beside the gradient, the parameter and what is kept: the projected gradient made
/// and read, 13 numbers for each of its in Adam's ops, the update made, scaled and read.
std::int64_t moved_by_galore(const ProjectedMatrix& m) {
  return 15 * m.projected() + 4 * m.numbers();
}

class ProjectedStates {
 public:
  explicit ProjectedStates(const GaloreOptions& options)
      : matrices_(options.matrices),
        rank_(options.rank),
        every_(options.every),
        in_8_bits_(options.bits == 8),
        refreshes_(options.refreshes) {}

  std::variant<ChangedStates, std::string> operator()(const TrainedByAdam& of) {
    const std::vector<std::int64_t>& shape = of.parameter.shape;
    if (shape.empty() && of.numbers != 1) {
      return "the shape of '" + of.parameter.name + "' is not known: only graphs that state it have matrices";
    }
    const std::string dtype(of.dtype);
    if (shape.size() != 2 || !matches(matrices_, of.parameter.name)) {
      return ChangedStates{.states = {{"state 0", of.state, dtype}, {"state 1", of.state, dtype}}};
    }
    const ProjectedMatrix m{std::max(shape[0], shape[1]), std::min(shape[0], shape[1]), rank_};
    if (rank_ > m.shorter) {
      return fmt::format("rank {} is larger than '{}', a matrix of {} x {}: leave it out by matrices=", rank_,
                         of.parameter.name, shape[0], shape[1]);
    }
    const std::int64_t each = of.state.count / of.numbers;
    note(m, of, each);
    const Bytes state = in_8_bits_ ? state_in_8_bits(m.projected(), each) : Bytes{each * m.projected()};
    const std::string kept = in_8_bits_ ? "uint8" : dtype;
    const std::int64_t usual = usual_workspace(m), refresh = std::max(usual, decomposition_workspace(m));
    return ChangedStates{
        .states = {{"projected state 0", state, kept},
                   {"projected state 1", state, kept},
                   {"projection", Bytes{each * m.shorter * rank_}, dtype}},
        .workspace = Bytes{each * (refreshes_ ? refresh : usual)},
        .also_moved = Bytes{each * moved_by_galore(m)},
        .flops = Flops{projection_flops(m) + decomposition_flops(m) / static_cast<double>(refreshes_ ? 1 : every_)}};
  }

  std::size_t matrices() const { return count_; }

  std::string text() const {
    return fmt::format(
        "galore projects {} matrices to rank {}; one step in {} decomposes them, with up to {} beside, other steps "
        "with up "
        "to {}: this is {}; galore|backward_updates does without {} of gradients",
        count_, rank_, every_, format_bytes(spike_), format_bytes(usual_),
        refreshes_ ? "such a step" : "a step of mean time and of the others' memory",
        format_bytes(gradients_ - largest_gradient_));
  }

 private:
  static Bytes state_in_8_bits(std::int64_t numbers, std::int64_t each) {
    return numbers < 4096 ? Bytes{each * numbers} : Bytes{numbers + 4 * ((numbers + 255) / 256)};
  }

  void note(const ProjectedMatrix& m, const TrainedByAdam& of, std::int64_t each) {
    ++count_;
    usual_ = std::max(usual_, Bytes{each * usual_workspace(m)});
    spike_ = std::max(spike_, Bytes{each * decomposition_workspace(m)});
    gradients_ += of.parameter.bytes;
    largest_gradient_ = std::max(largest_gradient_, of.parameter.bytes);
  }

  std::string_view matrices_;
  std::int64_t rank_, every_;
  bool in_8_bits_, refreshes_;
  std::size_t count_ = 0;
  Bytes usual_, spike_, gradients_, largest_gradient_;
};

std::variant<Problem, std::string> galore(const Problem& problem, const GaloreOptions& options) {
  ProjectedStates states(options);
  std::variant<Problem, std::string> made =
      with_optimizer(problem, {.name = "galore", .states = [&](const TrainedByAdam& of) { return states(of); }});
  Problem* changed = std::get_if<Problem>(&made);
  if (changed == nullptr) return made;
  if (states.matrices() == 0) {
    return fmt::format("no matrix of '{}' is '{}'", problem.graph.name, options.matrices);
  }
  changed->notes.push_back(states.text());
  return made;
}

constexpr auto galore_options = options_of<GaloreOptions>(
    option_of<&GaloreOptions::rank>({
        .name = "rank",
        .least = 1,
        .most = 1'000'000'000,
        .values = "a whole number from 1",
        .help = "rows or columns that gradients are projected to",
    }),
    option_of<&GaloreOptions::every>({
        .name = "every",
        .least = 1,
        .most = 1'000'000'000,
        .values = "a whole number from 1",
        .help = "steps from one decomposition to the next",
    }),
    option_of<&GaloreOptions::matrices>({
        .name = "matrices",
        .values = "a pattern of names such as *.weight.*",
        .help = "parameters of two dimensions that are projected; the others keep Adam's states",
        .allowed = [](std::string_view text) { return !text.empty(); },
    }),
    option_of<&GaloreOptions::bits>({
        .name = "bits",
        .words = "32 8",
        .help = "8: projected states as those of adam8bit",
    }),
    option_of<&GaloreOptions::refreshes>({
        .name = "step",
        .words = "mean refresh",
        .help = "mean: the time of a decomposition spread over the steps between two, its memory left out; refresh: "
                "the step that decomposes",
    }));

}  // namespace

extern constinit const StrategyInfo galore_strategy{
    .name = "galore",
    .family = Family::transform,
    .summary = "keeps Adam's states in a space of low rank, which gradients of matrices are projected to",
    .source = "Zhao et al., 'GaLore: memory-efficient LLM training by gradient low-rank projection', ICML 2024",
    .needs_updates = true,
    .needs_shapes = true,
    .options = galore_options,
    .kind = TransformStrategy{.transform = by_options<galore>},
};

}  // namespace plimsoll
