// Slices of sequences that attend to each other: what stays for later ones, to the byte, and what the judge asks of
// them.

#include <map>

#include "sim/lower/lowering.h"
#include "tests/strategies/pipelining/equal_pipelines.h"

namespace plimsoll {
namespace {

/// Stages that save 28 bytes, of which 8 are queries, keys and values; softmax's 16 are products' inputs too.
Chain attending_stages(std::uint32_t parts) {
  Chain chain = equal_stages(parts, {}, {28, 28});
  for (Stage& stage : chain.stages) {
    stage.inner = {
        {"norm", Bytes{4}, {}, {}, {{.by = SavedBy::linear}}},
        {"qkv", Bytes{8}, {}, {}, {{.by = SavedBy::matmul}}},
        {"weights", Bytes{16}, {}, {}, {{.by = SavedBy::matmul}, {.by = SavedBy::softmax, .is_result = true}}}};
  }
  return chain;
}

Problem sliced_problem(std::uint32_t p, std::uint32_t m, const std::string& spec) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  const Problem whole =
      problem_of(attending_stages(p), gpus({.count = p}), {.micro_batches = m, .backward = backward_for(passes)});
  return transformed(whole, passes);
}

// A slice of k keeps (28 - 8) / k bytes for its backward alone, and 8 / k that later slices read with as much room for
// their gradients.
TEST_CASE("slices keep what later ones attend to until their backward, whatever is recomputed", "[pipelining]") {
  for (const std::uint32_t p : {1U, 2U, 4U}) {
    for (const std::uint32_t m : {1U, 3U}) {
      for (const std::uint32_t k : {2U, 4U}) {
        const std::string plain = "seq1f1b(slices=" + std::to_string(k) + ")";
        for (const std::string& spec : {plain, plain + "|full_recompute"}) {
          INFO(spec << ", p " << p << ", m " << m);
          const Problem problem = sliced_problem(p, m, spec);
          const Plan made = std::get<Plan>(plan(problem, parse_spec(spec, "test"), std::nullopt));
          CHECK(check(made.schedule, problem.graph, problem.platform).empty());
          const Timeline timeline = simulate_event(made.schedule, problem.platform);
          for (std::uint32_t s = 0; s < p; ++s) {
            const std::int64_t slices = std::min(p - s - 1 + k, m * k);
            const std::int64_t stays = 16 / k * slices, own = 20 / k;
            CHECK(timeline.peaks[s].bytes == Bytes{stays + (spec == plain ? own * slices : own)});
          }
        }
      }
    }
  }
}

std::map<Rule, std::size_t> broken(const Schedule& schedule, const Problem& problem) {
  std::map<Rule, std::size_t> count;
  for (const Violation& violation : check(schedule, problem.graph, problem.platform)) ++count[violation.rule];
  return count;
}

TEST_CASE("a schedule whose slices do not attend to each other is refused by the judge", "[pipelining]") {
  const Problem problem = sliced_problem(2, 2, "seq1f1b(slices=2)");
  Problem apart = problem;  // the same tensors, each slice for itself
  for (Op& op : apart.graph.ops) op.attributes.clear();
  const Plan made = std::get<Plan>(plan(apart, parse_spec("1f1b", "test"), std::nullopt));
  CHECK(broken(made.schedule, apart).empty());
  // Forward and backward of the second slice of each of two sequences in both stages. 1F1B takes the first slice's
  // backward first.
  CHECK(broken(made.schedule, problem) == std::map<Rule, std::size_t>{{Rule::missing_input, 8}, {Rule::incomplete, 4}});
}

TEST_CASE("no schedule is made of slices that come in another order", "[pipelining]") {
  const Problem problem = sliced_problem(1, 1, "seq1f1b(slices=2)");
  const PartId part{0};
  const auto lowered = [&](const std::vector<Turn>& order) {
    Partition partition = one_device(problem.graph, problem.micro_batches, problem.platform.devices.size());
    partition.parts.front().cut_before_backward = true;
    partition.order.front() = order;
    const std::vector<Tape> tapes{plain_tape({problem, partition, part})};
    return lower(problem, partition, tapes);
  };
  constexpr std::uint32_t forward = number_of(PieceName::forward), backward = number_of(PieceName::backward);
  const Turn f0{part, 0, forward}, f1{part, 1, forward}, b0{part, 0, backward}, b1{part, 1, backward};
  CHECK(std::holds_alternative<Schedule>(lowered({f0, f1, b1, b0})));
  const std::string why =
      "' on one slice of a sequence reads 'attended in s0' of an earlier one, which is not on its device";
  CHECK(std::get<std::string>(lowered({f1, f0, b1, b0})) == "'s0" + why);
  CHECK(std::get<std::string>(lowered({f0, f1, b0, b1})) == "'s0 backward" + why);
}

}  // namespace
}  // namespace plimsoll
