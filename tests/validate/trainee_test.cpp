// Training step after step: exact schedules train as plain training does, bit for bit; that is what a plain loop gives
// which knows no schedule; and it learns.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "sim/measure/metrics.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/validate/op_loop.h"
#include "validate/cpu/trainee.h"
#include "validate/networks/changed_network.h"
#include "validate/networks/network_prefix.h"
#include "validate/reference/elementwise.h"

namespace plimsoll {
namespace {

using TraineeOrNot = std::variant<Trainee, ReplayFailure>;

/// As the program makes it; of a transformed problem too.
TraineeOrNot trainee_or_not(const std::string& reference, const std::string& spec, std::uint32_t micro_batches = 1,
                            Platform platform = one_gpu(), std::optional<Bytes> budget = {}, std::uint64_t seed = 0) {
  const bool is_graph = reference.find("view=graph") != std::string::npos;
  const std::vector<Pass> passes = parse_spec(spec, "test");
  const ProblemOptions options{.micro_batches = micro_batches,
                               .optimizer = is_graph ? Optimizer::none : Optimizer::adam,
                               .backward = backward_for(passes),
                               .inner = inner_for(passes)};
  const Training whole = training_of(reference + (is_graph ? ",updates=adam" : ""), std::move(platform), options);
  Problem problem = transformed(whole.problem, passes);
  const PlanOutcome outcome = plan(problem, passes, budget);
  REQUIRE(std::holds_alternative<Plan>(outcome));
  Network network = whole.network.network;
  if (!problem.mesh) {
    network = without_first_stages(
        network, first_stage_of(network, problem.graph, problem.chain ? problem.chain->stages.size() : 0));
    take_shapes(network.graph, problem.graph);
    take_updates(network.graph, problem.graph);
  }
  return Trainee::make(std::move(problem), std::get<Plan>(outcome).schedule, std::move(network), seed);
}

Trainee trainee_of(const std::string& reference, const std::string& spec, std::uint32_t micro_batches = 1,
                   std::optional<Bytes> budget = {}, std::uint64_t seed = 0) {
  TraineeOrNot made = trainee_or_not(reference, spec, micro_batches, one_gpu(), budget, seed);
  if (const auto* failure = std::get_if<ReplayFailure>(&made)) FAIL(failure->what);
  return std::move(std::get<Trainee>(made));
}

/// Labels by which of `classes` directions a row of noise is nearest to.
LabelledRows directions(std::int64_t rows, std::int64_t width, std::int64_t classes, unsigned seed) {
  std::mt19937 generator(seed), of_directions(99);
  std::normal_distribution<float> normal;
  std::vector<float> direction(static_cast<std::size_t>(width * classes));
  for (float& value : direction) value = normal(of_directions);
  LabelledRows data;
  data.width = width;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::vector<float> products(static_cast<std::size_t>(classes), 0);
    for (std::int64_t i = 0; i < width; ++i) {
      data.values.push_back(normal(generator));
      for (std::int64_t c = 0; c < classes; ++c) {
        products[static_cast<std::size_t>(c)] +=
            data.values.back() * direction[static_cast<std::size_t>(c * width + i)];
      }
    }
    data.labels.push_back(static_cast<std::int32_t>(std::ranges::max_element(products) - products.begin()));
  }
  return data;
}

Score stepped(Trainee& trainee, const Batch& batch, std::int64_t step, const Chance& chance = {}) {
  const std::variant<Score, ReplayFailure> made = trainee.step(batch, update_step(0.01F, step + 1), chance);
  if (const auto* failure = std::get_if<ReplayFailure>(&made)) FAIL(failure->what);
  return std::get<Score>(made);
}

/// The losses of the steps.
std::vector<double> losses_of(Trainee& trainee, const LabelledRows& data, std::int64_t rows, std::int64_t steps,
                              std::uint32_t micro_batches = 1, std::uint64_t seed = 0) {
  RowOrder order(data.count(), rows * micro_batches, 3);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < steps; ++step) {
    const Chance chance{.seed = (seed << 32U) + static_cast<std::uint64_t>(step)};
    losses.push_back(stepped(trainee, batch_of(data, order.rows_of(step), micro_batches), step, chance).loss);
  }
  return losses;
}

const std::string trained_mlp = "mlp:layers=4,width=24,batch=16,classes=4",
                  small_resnet = "resnet:blocks=2,channels=4,picture=8,batch=4,classes=4,colors=1";

std::int64_t width_of(const std::string& reference) {
  return reference.starts_with("mlp") ? 24 : 64;
}
std::int64_t batch_of_network(const std::string& reference) {
  return reference.starts_with("mlp") ? 16 : 4;
}

// Sums in another order: not the same bits.
TEST_CASE("ranks of a mesh train as one device does over many steps", "[training][eleventh-2]") {
  const std::string reference = trained_mlp + ",view=graph";
  constexpr std::uint32_t micro_batches = 4;
  const LabelledRows data = directions(320, 24, 4, 1);
  Trainee plain = trainee_of(reference, "store_all", micro_batches);
  const std::vector<double> plainly = losses_of(plain, data, 16, 6, micro_batches);
  constexpr BytesPerSecond fast{20e9};
  for (const std::uint32_t count : {2U, 4U}) {
    for (const char* spec : {"data_parallel", "zero1", "zero2", "zero3", "megatron", "hsm2dl", "hsm2dl(replicas=1)",
                             "megatron(tensor=2)|zero1"}) {
      if (count == 2 && std::string_view(spec).starts_with("megatron(")) continue;  // takes four
      INFO(spec << " on " << count);
      const Platform platform = gpus({.count = count, .to_host = fast, .to_peers = fast});
      TraineeOrNot made = trainee_or_not(reference, spec, micro_batches, platform);
      if (const auto* failure = std::get_if<ReplayFailure>(&made)) FAIL(failure->what);
      auto& ranks = std::get<Trainee>(made);
      const std::vector<double> losses = losses_of(ranks, data, 16, 6, micro_batches);
      for (std::size_t step = 0; step < losses.size(); ++step) {
        CHECK(losses[step] == Approx(plainly[step]).epsilon(1e-5));
      }
      CHECK(losses.back() < losses.front());
      REQUIRE(ranks.values().size() == plain.values().size());
      const Score one = plain.infer(data), several = ranks.infer(data);
      CHECK(several.loss == Approx(one.loss).epsilon(1e-5));
      TraineeOrNot again = trainee_or_not(reference, spec, micro_batches, platform);
      CHECK(losses_of(std::get<Trainee>(again), data, 16, 6, micro_batches) == losses);
      CHECK(std::get<Trainee>(again).values() == ranks.values());
    }
  }
}

TEST_CASE("exact schedules train as plain training does over many steps, bit for bit", "[training]") {
  const std::string network = GENERATE(trained_mlp, small_resnet);
  const LabelledRows data = directions(80, width_of(network), 4, 1);
  for (const bool graph : {false, true}) {
    const std::string reference = network + (graph ? ",view=graph" : "");
    Trainee plain = trainee_of(reference, "store_all", 2);
    const std::vector<double> plainly = losses_of(plain, data, batch_of_network(network), 6, 2);
    const std::vector<std::string> specs =
        graph ? std::vector<std::string>{"greedy_recompute|offload_greedy", "lossless(nonzero=1)", "zero_offload"}
              : std::vector<std::string>{"rotor", "full_recompute|offload_greedy"};
    for (const std::string& spec : specs) {
      INFO(reference << ", " << spec);
      Trainee trainee = trainee_of(reference, spec, 2);
      CHECK(losses_of(trainee, data, batch_of_network(network), 6, 2) == plainly);
      CHECK(trainee.values() == plain.values());
      CHECK(trainee.values().size() > 8);
    }
  }
}

/// Every step all ops in the graph's order, without schedule or replay.
class StepLoop : public OneThreadLoop {
 public:
  explicit StepLoop(const std::string& reference) : OneThreadLoop(with_kernels(named_network(reference).network)) {}

  void step(const Batch& batch, const UpdateStep& update) {
    summed_.clear();
    for (std::size_t m = 0; m < batch.inputs.size(); ++m) {
      values_[made_.network.boundaries[0].index] = batch.inputs[m];
      for (const Op& op : graph().ops) {
        if (op.phase != Phase::update) run(op, batch.labels[m], update);
      }
    }
    for (const Op& op : graph().ops) {
      if (op.phase == Phase::update) run(op, {}, update);
    }
  }

  const std::vector<std::byte>& value(std::size_t t) const { return values_[t]; }

 private:
  void run(const Op& op, const std::vector<std::int32_t>& labels, const UpdateStep& update) {
    Run run = run_of(op);
    for (const TensorId t : op.inputs) run.arguments.inputs.push_back(values_[t.index].data());
    run.arguments.labels = labels.data();
    run.arguments.update = update;
    run_kernel(op, run);
    add_parts(op, run);
  }
};

TEST_CASE("steps are those of a plain loop, bit for bit", "[training]") {
  const std::string network = GENERATE(trained_mlp, small_resnet);
  const std::string reference = network + ",view=graph";
  const LabelledRows data = directions(60, width_of(network), 4, 2);
  Trainee trainee = trainee_of(reference, "greedy_recompute", 2);
  StepLoop loop(reference + ",updates=adam");
  RowOrder order(data.count(), 2 * batch_of_network(network), 8);
  for (std::int64_t step = 0; step < 5; ++step) {
    const Batch batch = batch_of(data, order.rows_of(step), 2);
    stepped(trainee, batch, step);
    loop.step(batch, update_step(0.01F, step + 1));
  }
  std::size_t compared = 0;
  for (std::size_t t = 0; t < loop.graph().tensors.size(); ++t) {
    const auto found = trainee.values().find(loop.graph().tensors[t].name);
    if (found == trainee.values().end()) continue;
    INFO(found->first);
    CHECK(found->second == loop.value(t));
    ++compared;
  }
  CHECK(compared == trainee.values().size());
}

TEST_CASE("a network learns which direction rows are nearest to, plainly and with values in a few bits", "[training]") {
  const LabelledRows data = directions(640, 24, 4, 3), held_out = directions(200, 24, 4, 4);
  std::map<std::string, std::vector<double>> losses;
  for (const std::string spec : {"store_all", "quantize(bits=8)", "quantize(bits=2,group=8)"}) {
    INFO(spec);
    Trainee trainee = trainee_of(trained_mlp + ",view=graph", spec);
    const Score before = trainee.infer(held_out);
    losses[spec] = losses_of(trainee, data, 16, 240);
    const Score after = trainee.infer(held_out), known = trainee.infer(data);
    CHECK(before.right < 120);
    CHECK(after.right > 160);
    CHECK(known.right > 600);
    CHECK(known.loss / 640 < 0.25);
    CHECK(after.rows == 200);
    for (const double loss : losses[spec]) CHECK(std::isfinite(loss));
  }
  CHECK(losses["store_all"][0] == losses["quantize(bits=8)"][0]);  // forwards are exact
  CHECK(losses["store_all"].back() != losses["quantize(bits=8)"].back());
  CHECK(losses["quantize(bits=2,group=8)"].back() != losses["quantize(bits=8)"].back());
}

TEST_CASE("the same seed trains to the same bits, another one to others", "[training]") {
  const LabelledRows data = directions(80, 24, 4, 5);
  const auto trained = [&](std::uint64_t draws, std::uint64_t first) {
    Trainee trainee = trainee_of(trained_mlp + ",view=graph", "quantize(bits=2)", 1, {}, first);
    losses_of(trainee, data, 16, 4, 1, draws);
    return trainee.values();
  };
  CHECK(trained(1, 0) == trained(1, 0));
  CHECK(trained(1, 0) != trained(2, 0));
  CHECK(trained(1, 0) != trained(1, 7));
}

TEST_CASE("inference takes each row alone, batch norms by their running statistics", "[training]") {
  const std::string reference = small_resnet + ",view=graph";
  const LabelledRows data = directions(22, 64, 4, 6);
  Trainee trainee = trainee_of(reference, "store_all");
  losses_of(trainee, data, 4, 5);
  const Score all = trainee.infer(data);
  CHECK(all.rows == 22);
  Score sum;
  for (std::int64_t r = 0; r < data.count(); ++r) {
    LabelledRows one{.width = 64, .values = {}, .labels = {data.labels[static_cast<std::size_t>(r)]}};
    one.values.assign(data.values.begin() + r * 64, data.values.begin() + (r + 1) * 64);
    sum += trainee.infer(one);
  }
  CHECK(sum.right == all.right);
  CHECK(sum.loss == Approx(all.loss).epsilon(1e-6));
}

/// Parameters stay, the same batch comes again and again: running statistics become the batch's.
TEST_CASE("inference of a batch norm is as in training once running statistics are the batch's", "[training]") {
  const LabelledRows data = directions(4, 64, 4, 7);
  Trainee trainee = trainee_of(small_resnet + ",view=graph", "store_all");
  const Batch batch = batch_of(data, {0, 1, 2, 3}, 1);
  double loss = 0;
  for (int step = 0; step < 150; ++step) {
    const std::variant<Score, ReplayFailure> made = trainee.step(batch, {.rate = 1e-30F}, {});
    REQUIRE(std::holds_alternative<Score>(made));
    loss = std::get<Score>(made).loss;
  }
  CHECK(trainee.infer(data).loss == Approx(loss).epsilon(0.01));
}

TEST_CASE("of a gradient that stays, Adam moves by the rate in every step", "[training]") {
  std::vector<float> w{1, 1}, m{0, 0}, v{0, 0};
  const std::vector<float> g{0.3F, -20};
  for (std::int64_t t = 1; t <= 50; ++t) plain::adam(w.data(), g.data(), m.data(), v.data(), 2, update_step(0.01F, t));
  CHECK(w[0] == Approx(0.5).epsilon(1e-3));
  CHECK(w[1] == Approx(1.5).epsilon(1e-3));
}

TEST_CASE("what cannot be one of many steps is refused with the reason", "[training]") {
  const auto why = [](const TraineeOrNot& made) {
    REQUIRE(std::holds_alternative<ReplayFailure>(made));
    return std::get<ReplayFailure>(made).what;
  };
  CHECK(why(trainee_or_not(trained_mlp, "seer(layers=1)")) ==
        "its first stages run once, on one batch, and their outputs are stored; each step here has another batch");
  CHECK(why(trainee_or_not(trained_mlp + ",view=graph", "adafactor")) ==
        "the CPU has the first update of Adafactor only, whose means decay from step to step");
  CHECK(why(trainee_or_not(trained_mlp, "pipedream", 3, gpus({.count = 2, .to_peers = BytesPerSecond{20e9}}))) ==
        "it updates parameters within an iteration, micro-batch by micro-batch; each step here is one update");
}

}  // namespace
}  // namespace plimsoll
