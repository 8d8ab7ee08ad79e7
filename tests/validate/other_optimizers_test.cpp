// Optimizers in Adam's place, replayed: gradients are those of plain training, and parameters and states those of plain
// loops that know neither schedules nor the replay's kernels.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "sim/judge/check.h"
#include "strategies/compose/spec.h"
#include "tests/training/training.h"
#include "validate/networks/changed_network.h"
#include "validate/networks/initial_values.h"
#include "validate/networks/networks.h"
#include "validate/reference/adam_in_8_bits.h"

namespace plimsoll {
namespace {

const std::string mlp = "mlp:layers=3,width=80,batch=6,classes=4",
                  conv = "resnet:blocks=1,channels=8,picture=16,batch=2,classes=5";

std::vector<float> floats(const std::vector<std::byte>& bytes) {
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(float));
  return numbers;
}

std::vector<std::byte> bytes_of_floats(const std::vector<float>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(float));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

/// A network whose updates are those that the spec leaves.
Training changed_training(const std::string& reference, const ProblemOptions& options, const std::string& spec) {
  Training plain = training_of(reference, one_gpu(), options);
  Problem changed = transformed(plain.problem, parse_spec(spec, "test"));
  Network network = plain.network.network;
  take_updates(network.graph, changed.graph);
  return {std::move(changed), with_kernels(std::move(network))};
}

struct Case {
  Training changed;
  Replayed run, plain;  ///< with Adam
};

Case case_of(const std::string& network, bool graph, const std::string& spec) {
  const std::string reference = network + (graph ? ",view=graph,updates=adam" : "");
  const ProblemOptions options{.micro_batches = 2, .optimizer = graph ? Optimizer::none : Optimizer::adam};
  const Training whole = training_of(reference, one_gpu(), options);
  const PlanOutcome store_all = planned(whole.problem, "store_all");
  Case made{changed_training(reference, options, spec), {}, replayed(whole, std::get<Plan>(store_all).schedule)};
  const std::vector<Pass> passes = parse_spec(spec, "test");
  const PlanOutcome outcome = plan(made.changed.problem, passes, std::nullopt);
  const Schedule& schedule = std::get<Plan>(outcome).schedule;
  made.run = replayed(made.changed, schedule);
  CHECK(recount(schedule, made.run.timeline, made.changed.problem.platform)[0] == made.run.timeline.peaks[0].bytes);
  return made;
}

/// Each update's parameter, as the plain network has it.
template <class Judge>
std::size_t for_each_update(const Case& of, Judge judge) {
  std::size_t judged = 0;
  const Graph& graph = of.changed.network.network.graph;
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::update) continue;
    const Tensor& parameter = graph[op.inputs[0]];
    const std::string& gradient = graph[op.inputs[1]].name;
    INFO(op.name);
    const auto left = of.run.values.find(gradient);  // none where the host updates and drops it
    if (left != of.run.values.end()) CHECK(left->second == of.plain.values.at(gradient));
    judge(op, parameter, floats(initial_value(parameter)), floats(of.plain.values.at(gradient)));
    ++judged;
  }
  return judged;
}

// ------------------------------------------------------------------------------------------------------- adam8bit

/// The numbers that a byte can mean, by the rule in words: 0, 1, and the middles of 2^e equal parts of 0.1 to 1, times
/// 10^(e - 6), of both signs; without a sign twice as many parts.
std::vector<double> table_in_words(bool with_sign) {
  std::vector<double> table{0, 1};
  for (int e = 0; e <= 6; ++e) {
    const double parts = std::pow(2, e + (with_sign ? 0 : 1));
    for (int p = 0; p < static_cast<int>(parts); ++p) {
      const double lower = 0.1 + 0.9 * p / parts, upper = 0.1 + 0.9 * (p + 1) / parts;
      const double middle = std::pow(10.0, e - 6) * (lower + upper) / 2;
      table.push_back(middle);
      if (with_sign) table.push_back(-middle);
    }
  }
  std::ranges::sort(table);
  return table;
}

TEST_CASE("the tables of 8-bit states have 256 numbers each, by the rule of the paper", "[validate]") {
  for (const bool with_sign : {true, false}) {
    const std::array<float, 256> table = plain::dynamic_table(with_sign);
    const std::vector<double> words = table_in_words(with_sign);
    REQUIRE(words.size() == 256);
    for (std::size_t i = 0; i < 256; ++i) CHECK(table[i] == Approx(words[i]).epsilon(1e-6).margin(1e-12));
    CHECK(table[0] == Approx(with_sign ? -0.99296875 : 0));
    CHECK(table[255] == 1);
  }
}

/// The code of a number relative to its block, looked for in the whole table.
std::uint8_t nearest(const std::array<float, 256>& table, float x) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < 256; ++i) {
    if (std::abs(table[i] - x) < std::abs(table[best] - x)) best = i;
  }
  return static_cast<std::uint8_t>(best);
}

std::vector<std::byte> packed_state(const std::vector<float>& numbers, bool with_sign) {
  const std::array<float, 256> table = plain::dynamic_table(with_sign);
  std::vector<float> scales;
  std::vector<std::byte> codes;
  for (std::size_t first = 0; first < numbers.size(); first += 256) {
    float scale = 0;
    for (std::size_t i = first; i < std::min(first + 256, numbers.size()); ++i) {
      scale = std::max(scale, std::abs(numbers[i]));
    }
    for (std::size_t i = first; i < std::min(first + 256, numbers.size()); ++i) {
      codes.push_back(std::byte{nearest(table, scale > 0 ? numbers[i] / scale : 0)});
    }
    scales.push_back(scale);
  }
  std::vector<std::byte> state = bytes_of_floats(scales);
  state.insert(state.end(), codes.begin(), codes.end());
  return state;
}

TEST_CASE("adam8bit replayed ends with the parameters and states of a plain loop, bit for bit", "[validate]") {
  for (const std::string& network : {mlp, conv}) {
    for (const bool graph : {false, true}) {
      for (const std::string then : {"", graph ? "|greedy_recompute" : "|rotor", "|offload_greedy", "|zero_offload"}) {
        INFO(network << (graph ? ", graph" : ", chain") << then);
        const Case made = case_of(network, graph, "adam8bit(least=64)" + then);
        std::size_t packed = 0;
        for_each_update(made, [&](const Op& op, const Tensor& parameter, std::vector<float> w, auto g) {
          std::vector<float> m(w.size()), v(w.size());
          for (std::size_t i = 0; i < w.size(); ++i) {
            m[i] = 0.9F * 0.0F + (1 - 0.9F) * g[i];
            v[i] = 0.999F * 0.0F + (1 - 0.999F) * g[i] * g[i];
            w[i] -= 0.01F * (m[i] / (1 - 0.9F)) / (std::sqrt(v[i] / (1 - 0.999F)) + 1e-8F);
          }
          CHECK(made.run.values.at(parameter.name) == bytes_of_floats(w));
          const bool is_packed = w.size() >= 64;
          packed += is_packed ? 1 : 0;
          const Graph& of = made.changed.network.network.graph;
          CHECK(made.run.values.at(of[op.inputs[2]].name) == (is_packed ? packed_state(m, true) : bytes_of_floats(m)));
          CHECK(made.run.values.at(of[op.inputs[3]].name) == (is_packed ? packed_state(v, false) : bytes_of_floats(v)));
        });
        CHECK(packed > 2);
      }
    }
  }
}

// Of ten steps with the same gradient Adam's states tend to it and its square; the 8-bit ones follow within what a code
// is too coarse: 1.8 % of a number at most where the table is finest, a few per cent elsewhere.
TEST_CASE("8-bit states that are not zero are read as what they were kept as", "[validate]") {
  constexpr std::int64_t n = 700;
  std::vector<float> w(n), m(n), v(n), g(n);
  for (std::size_t i = 0; i < n; ++i) g[i] = std::sin(static_cast<float>(i)) + 1.5F;
  std::vector<unsigned char> m8(static_cast<std::size_t>(plain::bytes_of_8_bit_state(n))), v8 = m8;
  std::vector<float> w8 = w;
  for (int step = 0; step < 10; ++step) {
    plain::adam_in_8_bits(w8.data(), g.data(), m8.data(), v8.data(), n);
    for (std::size_t i = 0; i < n; ++i) {
      m[i] = 0.9F * m[i] + 0.1F * g[i];
      v[i] = 0.999F * v[i] + 0.001F * g[i] * g[i];
      w[i] -= 0.01F * (m[i] / 0.1F) / (std::sqrt(v[i] / 0.001F) + 1e-8F);
    }
  }
  double largest = 0;
  for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(double{w8[i]} / w[i] - 1));
  CHECK(largest < 0.06);
  CHECK(largest > 0);
}

// ------------------------------------------------------------------------------------------------------ adafactor

/// One step of Adafactor in double precision, a tensor of any dimensions as a list of matrices.
struct DoubleAdafactor {
  std::vector<double> row, column, w, momentum;

  DoubleAdafactor(const std::vector<std::int64_t>& shape, const std::vector<float>& before, const std::vector<float>& g,
                  bool has_momentum) {
    const std::size_t n = g.size(), c = static_cast<std::size_t>(shape.back());
    const std::size_t r = shape.size() > 1 ? static_cast<std::size_t>(shape[shape.size() - 2]) : 1;
    std::vector<double> variance(n);
    if (shape.size() == 1) {
      for (std::size_t i = 0; i < n; ++i) variance[i] = double{g[i]} * g[i];
      row = variance;
    } else {
      row.assign(n / c, 0);
      column.assign(n / r, 0);
      for (std::size_t i = 0; i < n; ++i) {
        row[i / c] += double{g[i]} * g[i] / static_cast<double>(c);
        column[i / (r * c) * c + i % c] += double{g[i]} * g[i] / static_cast<double>(r);
      }
      for (std::size_t i = 0; i < n; ++i) {
        const std::size_t matrix = i / (r * c);
        double mean = 0;
        for (std::size_t k = 0; k < r; ++k) mean += row[matrix * r + k] / static_cast<double>(r);
        variance[i] = row[i / c] * column[matrix * c + i % c] / std::max(mean, 1.1920929e-7);
      }
    }
    double weights = 0, updates = 0;
    std::vector<double> update(n);
    for (std::size_t i = 0; i < n; ++i) {
      update[i] = g[i] / std::max(std::sqrt(variance[i]), 1.1920929e-7);
      weights += double{before[i]} * before[i] / static_cast<double>(n);
      updates += update[i] * update[i] / static_cast<double>(n);
    }
    const double rate = 0.01 * std::max(1e-3, std::sqrt(weights)) / std::max(1.0, std::sqrt(updates));
    for (std::size_t i = 0; i < n; ++i) {
      const double change = rate * update[i] * (has_momentum ? 0.1 : 1);
      if (has_momentum) momentum.push_back(change);
      w.push_back(before[i] - change);
    }
  }
};

void check_near(const std::vector<float>& numbers, const std::vector<double>& expected) {
  REQUIRE(numbers.size() == expected.size());
  double largest = 1e-30, difference = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    difference = std::max(difference, std::abs(numbers[i] - expected[i]));
    if (!std::isfinite(numbers[i])) difference = INFINITY;
  }
  CHECK(difference <= 1e-5 * largest);
}

TEST_CASE("adafactor replayed ends as a plain loop in double precision", "[validate]") {
  for (const std::string& network : {mlp, conv}) {
    for (const bool momentum : {false, true}) {
      for (const std::string then : {"", "|greedy_recompute", "|offload_greedy", "|zero_offload"}) {
        INFO(network << then);
        const Case made = case_of(network, true, (momentum ? "adafactor(momentum=on)" : "adafactor") + then);
        std::size_t factored = 0;
        for_each_update(made, [&](const Op& op, const Tensor& parameter, const auto& w, const auto& g) {
          const DoubleAdafactor expected(parameter.shape, w, g, momentum);
          const Graph& of = made.changed.network.network.graph;
          const auto kept = [&](std::size_t i) { return floats(made.run.values.at(of[op.inputs[i]].name)); };
          check_near(floats(made.run.values.at(parameter.name)), expected.w);
          check_near(kept(2), expected.row);
          const bool is_factored = parameter.shape.size() > 1;
          if (is_factored) check_near(kept(3), expected.column);
          if (momentum) check_near(kept(is_factored ? 4 : 3), expected.momentum);
          factored += is_factored ? 1 : 0;
        });
        CHECK(factored > 1);
      }
    }
  }
}

TEST_CASE("a changed update is refused where the network's is another", "[validate]") {
  const ProblemOptions options{.micro_batches = 1, .optimizer = Optimizer::adam};
  const Training changed = changed_training(mlp, options, "adam8bit(least=64)");
  const Training plain{changed.problem, with_kernels(named_network(mlp, Optimizer::adam).network)};
  const PlanOutcome outcome = plan(changed.problem, parse_spec("adam8bit(least=64)", "test"), std::nullopt);
  const auto run = run_of(plain, std::get<Plan>(outcome).schedule, {});
  REQUIRE(std::holds_alternative<ReplayFailure>(run));
  CHECK(std::get<ReplayFailure>(run).what.find(" here") != std::string::npos);
}

}  // namespace
}  // namespace plimsoll
