// Searches over splits against all of them, on tables and on models of a few products.

#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <tuple>

#include "platforms/platform_file.h"
#include "sim/mesh/rank_graph.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/hybrid/bsp_model.h"
#include "strategies/hybrid/elimination.h"
#include "strategies/hybrid/mesh_searches.h"
#include "strategies/hybrid/on_mesh.h"
#include "strategies/hybrid/split_table.h"
#include "tests/bad_input.h"
#include "tests/generate/random.h"
#include "tests/hybrid/judged_time.h"
#include "tests/random_case.h"
#include "traces/models/synthetic.h"
#include "traces/trace_file.h"

using namespace plimsoll;

namespace {

SplitTable random_table(std::uint64_t seed, std::uint32_t most_nodes) {
  Random random(seed);
  SplitTable table;
  const std::uint32_t nodes = random.between(1, most_nodes);
  for (std::uint32_t n = 0; n < nodes; ++n) {
    std::vector<SplitTable::Choice> choices(random.between(1, 4));
    for (SplitTable::Choice& choice : choices) {
      choice.seconds = Seconds{random.unit()};
      choice.sums = Seconds{random.unit()};
    }
    table.nodes.push_back(std::make_shared<const std::vector<SplitTable::Choice>>(std::move(choices)));
    table.edges_of.emplace_back();
  }
  for (std::uint32_t a = 0; a < nodes; ++a) {
    for (std::uint32_t b = a + 1; b < nodes; ++b) {
      if (!random.chance(0.5)) continue;
      std::vector<Seconds> seconds(table.choices(a).size() * table.choices(b).size());
      for (Seconds& each : seconds) each = Seconds{2 * random.unit()};
      for (const std::uint32_t end : {a, b})
        table.edges_of[end].push_back(static_cast<std::uint32_t>(table.edges.size()));
      table.edges.push_back({a, b, std::make_shared<const std::vector<Seconds>>(std::move(seconds))});
    }
  }
  return table;
}

/// By trying all choices.
template <class Visit>
void for_all_choices(const SplitTable& table, Visit visit) {
  SplitChoices choices(table.nodes.size(), 0);
  for (bool more = true; more;) {
    visit(choices);
    more = false;
    for (std::size_t n = choices.size(); n-- > 0 && !more;) {
      more = choices[n] + 1 < table.choices(n).size();
      choices[n] = more ? choices[n] + 1 : 0;
    }
  }
}

Seconds cheapest(const SplitTable& table) {
  Seconds least{std::numeric_limits<double>::infinity()};
  for_all_choices(table, [&](const SplitChoices& choices) { least = std::min(least, table.priced(choices)); });
  return least;
}

/// A chain of products of matrices with its backward, now and then with a sum of two of its values.
Problem random_products(std::uint64_t seed, std::uint32_t devices) {
  Random random(seed);
  Graph graph;
  graph.name = "products";
  graph.source.dtype = "bf16";
  const auto tensor = [&](std::string name, TensorKind kind, std::vector<std::int64_t> shape) {
    Tensor made;
    made.name = std::move(name);
    made.kind = kind;
    made.bytes = Bytes{2};
    for (const std::int64_t extent : shape) made.bytes = extent * made.bytes;
    made.shape = std::move(shape);
    made.dtype = "bf16";
    made.storage = id_at<StorageId>(graph.storages++);
    graph.tensors.push_back(std::move(made));
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const auto add = [&](std::string name, std::string loop, Phase phase, double flops, std::vector<TensorId> inputs,
                       std::vector<TensorId> outputs, const std::string& of = {}) {
    Op op;
    op.name = std::move(name);
    op.kind = "linear";
    op.phase = phase;
    op.flops = Flops{flops};
    op.duration = Seconds{flops / 1e14};
    op.bytes_moved = Bytes{0};
    for (const auto* list : {&inputs, &outputs}) {
      for (const TensorId t : *list) *op.bytes_moved += graph[t].bytes;
    }
    op.inputs = std::move(inputs);
    op.outputs = std::move(outputs);
    op.attributes = {{"loop", std::move(loop)}};
    if (!of.empty()) op.attributes.emplace_back("of", of);
    graph.ops.push_back(std::move(op));
  };
  const auto extent = [&] { return std::int64_t{512} << random.below(4); };
  const std::int64_t rows = extent();
  const std::uint32_t products = random.between(1, 3);
  std::vector<std::int64_t> widths{extent()};
  std::vector<TensorId> x{tensor("x", TensorKind::input, {rows, widths.back()})}, w;
  for (std::uint32_t p = 0; p < products; ++p) {
    widths.push_back(extent());
    const std::string number = std::to_string(p);
    w.push_back(tensor("w" + number, TensorKind::parameter, {widths[p], widths[p + 1]}));
    x.push_back(tensor("y" + number, TensorKind::activation, {rows, widths[p + 1]}));
    const double flops = 2.0 * static_cast<double>(rows * widths[p] * widths[p + 1]);
    add("product" + number, "r i, i j -> r j", Phase::forward, flops, {x[p], w[p]}, {x[p + 1]});
  }
  TensorId d = tensor("d", TensorKind::gradient, {rows, widths.back()});
  add("loss", "r j -> r j", Phase::forward, 0, {x.back()}, {d});
  for (std::uint32_t p = products; p-- > 0;) {
    const std::string number = std::to_string(p), of = "product" + number;
    const double flops = 2.0 * static_cast<double>(rows * widths[p] * widths[p + 1]);
    const TensorId dw = tensor("gradient of w" + number, TensorKind::parameter_gradient, {widths[p], widths[p + 1]});
    graph.tensors[dw.index].gradient_of = w[p];
    add(of + " weight", "r i, r j -> i j", Phase::backward, flops, {x[p], d}, {dw}, of);
    if (p == 0) break;
    const TensorId dx = tensor("gradient of y" + std::to_string(p), TensorKind::gradient, {rows, widths[p]});
    add(of + " input", "r j, i j -> r i", Phase::backward, flops, {d, w[p]}, {dx}, of);
    d = dx;
  }
  Platform platform = load_platform("a100_sxm_8");
  auto made = make_problem(std::move(graph), std::move(platform), {.optimizer = Optimizer::none});
  Problem problem = std::get<Problem>(std::move(made));
  while (problem.platform.devices.size() > devices) {
    problem.platform.memories[problem.platform.devices.back().memory.index].device.reset();
    problem.platform.devices.pop_back();
  }
  for (Device& device : problem.platform.devices) device.host = MemoryId{0};
  return problem;
}

}  // namespace

TEST_CASE("elimination and the integer program find the cheapest of all choices", "[hybrid]") {
  for (const RandomCase seed : random_cases(1, 200)) {
    const SplitTable table = random_table(seed, 6);
    const Seconds least = cheapest(table);
    const std::optional<EliminatedSplit> made = eliminated(table);
    REQUIRE(made);
    CHECK(made->is_proven);
    CHECK(table.priced(made->choices).value == Approx(least.value).epsilon(1e-9));
    const SplitChoices start = swept(table, {}, 10);
    CHECK(table.priced(start).value >= least.value * (1 - 1e-9));
    if (seed % 10 != 0) continue;  // the solver is a process of its own
    const ProgrammedSplit programmed = solve_split_program(table, start, {.seconds = 60});
    CHECK(programmed.stopped.empty());
    CHECK(table.priced(programmed.choices).value == Approx(least.value).epsilon(1e-6));
    CHECK(programmed.bound.value <= least.value * (1 + 1e-6));
  }
}

TEST_CASE("sweeps never make choices dearer, and heed what an operator may have", "[hybrid]") {
  for (const RandomCase seed : random_cases(1, 200)) {
    const SplitTable table = random_table(seed, 12);
    const SplitChoices first(table.nodes.size(), 0), once = swept(table, {first}, 1), often = swept(table, {first}, 9);
    CHECK(table.priced(once) <= table.priced(first));
    CHECK(table.priced(often) <= table.priced(once));
    std::vector<std::vector<bool>> last_only;
    for (std::size_t n = 0; n < table.nodes.size(); ++n) {
      last_only.emplace_back(table.choices(n).size(), false);
      last_only.back().back() = true;
    }
    std::vector<const std::vector<bool>*> may_have;
    for (const std::vector<bool>& each : last_only) may_have.push_back(&each);
    const SplitChoices last = chosen_in_order(table, may_have, 1);
    for (std::size_t n = 0; n < last.size(); ++n) CHECK(last[n] + 1 == table.choices(n).size());
    const double hidden = table.priced_with_overlap(first).value;
    CHECK(hidden <= table.priced(first).value);
    CHECK(hidden >= table.priced(first, 0).value);
  }
}

TEST_CASE("what goes between operators is priced by how they use it", "[hybrid]") {
  Graph graph;
  graph.name = "two products of products";
  const auto tensor = [&](TensorKind kind) {
    Tensor made;
    made.name = "t" + std::to_string(graph.tensors.size());
    made.kind = kind;
    made.bytes = Bytes{512 * 512 * 2};
    made.shape = {512, 512};
    made.storage = id_at<StorageId>(graph.storages++);
    graph.tensors.push_back(std::move(made));
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const auto product = [&](TensorId one, TensorId other) {
    Op op;
    op.name = "product" + std::to_string(graph.ops.size());
    op.flops = Flops{2.0 * 512 * 512 * 512};
    op.bytes_moved = Bytes{3 * 512 * 512 * 2};
    op.inputs = {one, other};
    op.outputs = {tensor(TensorKind::activation)};
    op.attributes = {{"loop", "i k, k j -> i j"}};
    graph.ops.push_back(op);
    return op.outputs.front();
  };
  using enum TensorKind;
  const TensorId a = product(tensor(input), tensor(input)), b = product(tensor(input), tensor(input));
  product(a, b);
  graph.source.dtype = "bf16";
  auto made = make_problem(graph, load_platform("h100_sxm_8"), {});
  const Problem& problem = std::get<Problem>(made);
  const auto model_or_why = BspModel::of(problem, WorkModel::symbolic);
  const BspModel& model = std::get<BspModel>(model_or_why);
  const Mesh mesh{{{"devices", 8}}};
  auto times = CollectiveTimes::on(problem.platform, mesh);
  const std::vector<std::vector<std::optional<std::uint8_t>>> none(3);
  const SplitTable table = model.table(mesh, 0, 1, none, std::get<CollectiveTimes>(times));
  REQUIRE(table.edges.size() == 2);
  CHECK(table.nodes[0] == table.nodes[1]);  // alike
  // Whole, a product computes 2 x 512^3 operations and moves three matrices; cut by rows among eight, an eighth of the
  // operations, of one factor and of the product, and all of the other factor.
  const Device& device = problem.platform.devices.front();
  const auto longer = [&](double flops, double bytes) {
    return std::max(flops / device.peak.at("bf16").value, bytes / device.memory_bandwidth->value);
  };
  const double matrix = 512 * 512 * 2, operations = 2.0 * 512 * 512 * 512;
  CHECK(table.choices(0).front().seconds.value == Approx(longer(operations, 3 * matrix)).epsilon(1e-12));
  for (const SplitTable::Choice& choice : table.choices(0)) {
    if (choice.cuts.front() != 0) continue;
    CHECK(choice.seconds.value == Approx(longer(operations / 8, matrix * (1 + 2.0 / 8))).epsilon(1e-12));
  }
  // Cut by rows, the first product gives what the third one cut by rows needs as its left operand; not as its right
  // one.
  const auto by_rows = static_cast<std::uint32_t>(
      std::ranges::find_if(table.choices(0), [](const auto& choice) { return choice.cuts.front() == 0; }) -
      table.choices(0).begin());
  CHECK(table.of_edge(table.edges[0], by_rows, by_rows) == Seconds{});
  CHECK(table.of_edge(table.edges[1], by_rows, by_rows) > Seconds{});

  // Cut by columns, it needs all of its left operand, as by rows of its right one; a larger one takes longer.
  const auto by_columns = static_cast<std::uint32_t>(
      std::ranges::find_if(table.choices(0), [](const auto& choice) { return choice.cuts.front() == 2; }) -
      table.choices(0).begin());
  CHECK(table.of_edge(table.edges[0], by_rows, by_columns) == table.of_edge(table.edges[1], by_rows, by_rows));
  Problem larger = problem;
  larger.graph.tensors[a.index].bytes = 2 * larger.graph[a].bytes;
  const auto larger_or_why = BspModel::of(larger, WorkModel::symbolic);
  const SplitTable other = std::get<BspModel>(larger_or_why).table(mesh, 0, 1, none, std::get<CollectiveTimes>(times));
  CHECK(other.of_edge(other.edges[0], by_rows, by_columns) > other.of_edge(other.edges[1], by_rows, by_rows));
  CHECK(other.of_edge(other.edges[1], by_rows, by_rows) == table.of_edge(table.edges[1], by_rows, by_rows));
}

TEST_CASE("elimination gives up where its tables would be too large", "[hybrid]") {
  SplitTable table = random_table(3, 6);
  while (table.edges.size() < 4) table = random_table(table.edges.size() + 11, 6);
  CHECK_FALSE(eliminated(table, 1));
}

// Uncut, the moments are sums over the graph's tensors, and no more than what is simulated. With all batches cut in
// two, values are halved and parameters are whole.
TEST_CASE("what ranks keep is counted", "[hybrid]") {
  for (const std::uint32_t micro_batches : {1U, 4U}) {
    auto made =
        make_problem(synthetic_model("transformer:layers=2,width=256,heads=4,sequence=128,batch=4,"
                                     "vocabulary=512,view=graph"),
                     load_platform("a100_sxm_8"), {.micro_batches = micro_batches, .optimizer = Optimizer::adam});
    const Problem& problem = std::get<Problem>(made);
    const auto model_or_why = BspModel::of(problem, WorkModel::symbolic);
    const BspModel& model = std::get<BspModel>(model_or_why);
    const Mesh mesh{{{"devices", 2}}};
    auto times_or_why = CollectiveTimes::on(problem.platform, mesh);
    const std::vector<std::vector<std::optional<std::uint8_t>>> none(model.operators());
    SplitTable table = model.table(mesh, 0, 1, none, std::get<CollectiveTimes>(times_or_why));
    model.add_memory(table, mesh, 0, none);
    Bytes fixed, gradients;
    for (const Tensor& tensor : problem.graph.tensors) {
      if (tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::optimizer_state) fixed += tensor.bytes;
      if (tensor.kind == TensorKind::parameter_gradient) gradients += tensor.bytes;
    }
    const std::vector<Bytes> whole = table.kept(SplitChoices(table.nodes.size(), 0));
    REQUIRE(whole.size() == 2);
    CHECK(whole[1] == fixed + gradients);
    const Bytes always = micro_batches > 1 ? fixed + gradients : fixed, values = whole[0] - always;
    CHECK(values > Bytes{0});
    PlanOutcome outcome = plan(problem, parse_spec("store_all", "test"), std::nullopt);
    const Bytes peak = std::get<Plan>(outcome).peak;
    CHECK(std::max(whole[0], whole[1]) <= peak);
    CHECK(5 * std::max(whole[0], whole[1]) >= 4 * peak);
    SplitChoices by_batch;
    for (std::size_t n = 0; n < table.nodes.size(); ++n) {
      const auto& choices = table.choices(n);
      const auto found = std::ranges::find_if(choices, [](const auto& choice) { return choice.cuts.front() == 0; });
      by_batch.push_back(static_cast<std::uint32_t>(found == choices.end() ? 0 : found - choices.begin()));
    }
    const std::vector<Bytes> halved = table.kept(by_batch);
    CHECK(halved[1] == whole[1]);
    CHECK((halved[0] - always).count == Approx(static_cast<double>(values.count) / 2).epsilon(0.02));
  }
}

// All splits are simulated; the limit is the peak of one of them. Whatever a search finds within it is no faster than
// the best that fits, and what it finds where none fits is the smallest.
TEST_CASE("searches keep a limit of memory where a split does", "[hybrid]") {
  std::size_t kept = 0, cases = 0;
  double slower = 0;
  for (const RandomCase seed : fewer_cases(1, 30)) {
    const std::uint32_t devices = 2U << (seed % 3);
    const Problem problem = random_products(seed, devices);
    const auto model_or_why = BspModel::of(problem, WorkModel::symbolic);
    const BspModel& model = std::get<BspModel>(model_or_why);
    const std::vector<std::vector<std::optional<std::uint8_t>>> none(model.operators());
    const Mesh whole{{{.name = "devices", .ranks = devices, .way = CollectiveWay::ring}}};  // as searches by default
    auto whole_times = CollectiveTimes::on(problem.platform, whole);
    const SplitTable table = model.table(whole, 0, 1, none, std::get<CollectiveTimes>(whole_times));
    std::vector<std::pair<Bytes, Seconds>> all;
    for_all_choices(table, [&](const SplitChoices& choices) {
      std::vector<std::vector<std::optional<std::uint8_t>>> cuts;
      for (std::size_t o = 0; o < model.operators(); ++o) cuts.push_back(table.choices(o)[choices[o]].cuts);
      auto made = on_mesh(problem, model.plan(whole, cuts));
      REQUIRE(std::holds_alternative<Problem>(made));
      Problem split = for_planners(std::get<Problem>(std::move(made)), false, Backward::whole, "test");
      split.transformed = true;
      PlanOutcome outcome = plan(split, parse_spec("store_all", "test"), std::nullopt);
      all.emplace_back(std::get<Plan>(outcome).peak, std::get<Plan>(outcome).makespan);
    });
    std::ranges::sort(all);
    Random random(seed);
    const Bytes limit = all[random.below(static_cast<std::uint32_t>(all.size()))].first;
    Seconds best{std::numeric_limits<double>::infinity()};
    for (const auto& [peak, makespan] : all) best = peak <= limit ? std::min(best, makespan) : best;
    for (const std::string search : {"alpa", "optcnn", "hsm2dl", "tofu"}) {
      const std::vector<Pass> passes = parse_spec(search + "(memory=" + std::to_string(limit.count) + "B)", "test");
      const Problem split = transformed(problem, passes);
      PlanOutcome outcome = plan(split, passes, limit);
      ++cases;
      const Plan* made = std::get_if<Plan>(&outcome);
      if (made == nullptr) {
        CHECK_FALSE(split.notes.empty());
        CHECK(std::get<Infeasible>(outcome).smallest);
        continue;
      }
      ++kept;
      CHECK(made->peak <= limit);
      if (search != "hsm2dl" && search != "tofu") CHECK(made->makespan.value >= best.value * (1 - 1e-9));
      slower += made->makespan / best - 1;
    }
    // Less than any split keeps.
    const Bytes nothing{1};
    const std::vector<Pass> passes = parse_spec("alpa(memory=1B)", "test");
    const Problem split = transformed(problem, passes);
    const PlanOutcome outcome = plan(split, passes, nothing);
    REQUIRE(std::holds_alternative<Infeasible>(outcome));
    CHECK(std::get<Infeasible>(outcome).smallest >= all.front().first);
  }
  CAPTURE(kept, cases, slower / static_cast<double>(kept));
  CHECK(static_cast<double>(kept) >= 0.9 * static_cast<double>(cases));
  if (all_cases()) CHECK(slower / static_cast<double>(kept) <= 0.15);
}

TEST_CASE("searches cut transformers so that they pass every judge", "[hybrid][eleventh-7]") {
  for (const char* platform : {"h100_sxm_8", "a100_sxm_64", "pcie_4x_rtx4090"}) {
    for (const char* spec : {"hsm2dl", "hsm2dl(model=simulated)", "tofu", "optcnn", "alpa",
                             "hsm2dl(devices=2)|1f1b|rotor", "hsm2dl(devices=2)|zero1(ranks=2)"}) {
      CAPTURE(platform, spec);
      auto made = make_problem(synthetic_model("transformer:layers=2,width=512,heads=8,sequence=128,batch=8,"
                                               "vocabulary=512,view=graph"),
                               load_platform(platform), {.micro_batches = 4, .optimizer = Optimizer::adam});
      judged_time(std::get<Problem>(made), spec);
    }
  }
}

// Every number of ranks by itself, and within it stages and replicas of Piper's planner; none is faster than what it
// takes, and it stands alone.
TEST_CASE("piper takes the fastest of the pipelines that it may give", "[hybrid][eleventh-0]") {
  // The first number of ranks is the fastest with many micro-batches, one in between with one.
  for (const auto& [platform, micro_batches] :
       {std::pair{"h100_sxm_8", 8U}, std::pair{"h100_sxm_8", 1U}, std::pair{"pcie_4x_rtx4090", 8U}}) {
    CAPTURE(platform, micro_batches);
    auto made = make_problem(synthetic_model("transformer:layers=4,width=1024,heads=8,sequence=512,batch=4,"
                                             "vocabulary=4096,view=graph"),
                             load_platform(platform), {.micro_batches = micro_batches, .optimizer = Optimizer::adam});
    const Problem& problem = std::get<Problem>(made);
    const Seconds taken = judged_time(problem, "piper");
    Seconds best{std::numeric_limits<double>::infinity()};
    std::vector<Seconds> all;
    for (std::uint32_t t = 1; t <= problem.platform.devices.size(); t *= 2) {
      const std::string tensor = std::to_string(t);
      const Seconds one = judged_time(problem, "piper(tensor=" + tensor + ")");
      CHECK(one.value ==
            Approx(judged_time(problem, "optcnn(devices=" + tensor + ")|1f1b(cut=piper)").value).epsilon(1e-9));
      best = std::min(best, one);
      all.push_back(one);
    }
    CHECK(taken == best);
    if (micro_batches == 1) {
      CHECK(best < all.front());
      CHECK(best < all.back());
    }
    CHECK(taken < judged_time(problem, "store_all"));
    judged_time(problem, "piper|rotor");
  }
  CHECK(complaint_of([] { parse_spec("piper|1f1b", "test"); }) ==
        "test:1:7: '1f1b' cannot follow 'piper': both assign work to devices");
  CHECK(complaint_of([] { parse_spec("piper|zero1", "test"); }) ==
        "test:1:7: 'zero1' cannot follow 'piper': both are hybrid strategies, and one part has one");
  auto chain = make_problem(synthetic_model("uniform:6"), load_platform("h100_sxm_8"), {.micro_batches = 4});
  if (const Problem* problem = std::get_if<Problem>(&chain)) {
    CHECK(complaint_of([&] { transformed(*problem, parse_spec("piper(tensor=2)", "test")); }) ==
          "piper: 'uniform:6' is a chain of stages, whose operators are not known: give a graph, such as "
          "transformer:view=graph");
  }
}

// The best of all numbers of copies, each asked for by itself; with as many copies as devices it is data_parallel.
TEST_CASE("hsm2dl takes the fastest number of replicas, and is no slower than data_parallel or megatron",
          "[hybrid][eleventh-4]") {
  for (const auto& [trace, platform, micro_batches] :
       {std::tuple{"transformer:layers=4,width=1024,heads=8,sequence=512,batch=2,vocabulary=4096,view=graph",
                   "h100_sxm_8", 8U},
        std::tuple{"transformer:layers=2,width=2048,heads=16,sequence=256,batch=8,vocabulary=4096,view=graph",
                   "h100_sxm_8", 4U},
        std::tuple{"transformer:layers=2,width=512,heads=8,sequence=128,batch=8,vocabulary=512,view=graph",
                   "pcie_4x_rtx4090", 6U},
        std::tuple{"resnet18:batch=8", "h100_sxm_8", 8U}}) {
    CAPTURE(trace, platform);
    auto made = make_problem(load_trace(trace).model, load_platform(platform),
                             {.micro_batches = micro_batches, .optimizer = Optimizer::adam});
    const Problem& problem = std::get<Problem>(made);
    const auto devices = static_cast<std::uint32_t>(problem.platform.devices.size());
    const Seconds taken = judged_time(problem, "hsm2dl");
    Seconds best{std::numeric_limits<double>::infinity()};
    for (std::uint32_t copies = 1; copies <= devices && micro_batches % copies == 0; copies *= 2) {
      const std::string number = std::to_string(copies);
      const Seconds one = judged_time(problem, "hsm2dl(replicas=" + number + ")");
      CAPTURE(copies, one.value, taken.value);
      best = std::min(best, one);
      if (copies < devices && std::string_view(trace).starts_with("transformer")) {
        CHECK(taken <= judged_time(problem, "megatron(tensor=" + std::to_string(devices / copies) +
                                                (copies > 1 ? ")|data_parallel" : ")")));
      }
      if (copies == devices) CHECK(one == judged_time(problem, "data_parallel"));
    }
    CHECK(taken == best);
    CHECK(taken <= 1.05 * judged_time(problem, "optcnn(replicas=auto)"));
  }
  auto made = make_problem(synthetic_model("transformer:layers=2,width=512,heads=8,sequence=128,batch=8,"
                                           "vocabulary=512,view=graph"),
                           load_platform("h100_sxm_8"), {.micro_batches = 6});
  const Problem& problem = std::get<Problem>(made);
  CHECK(complaint_of([&] { transformed(problem, parse_spec("hsm2dl(replicas=4)", "test")); }) ==
        "hsm2dl: 4 ranks cannot share out 6 micro-batches equally; give a multiple of 4");
  CHECK(complaint_of([&] { transformed(problem, parse_spec("optcnn(replicas=3)", "test")); }) ==
        "optcnn: 3 replicas do not share out 8 devices equally");
  // Others have the devices that are left.
  CHECK_FALSE(transformed(problem, parse_spec("hsm2dl(devices=2)", "test")).mesh->axis("replicas"));
}

TEST_CASE("searches over splits are never slower than no split, and refuse what cannot be halved", "[hybrid]") {
  auto made = make_problem(synthetic_model("transformer:layers=2,width=1024,heads=8,sequence=1024,batch=8,"
                                           "vocabulary=4096,view=graph"),
                           load_platform("a100_sxm_8"), {});
  const Problem& problem = std::get<Problem>(made);
  const Seconds alone = judged_time(problem, "store_all");
  for (const char* spec : {"hsm2dl", "tofu", "optcnn", "alpa"}) CHECK(judged_time(problem, spec) <= alone);
  CHECK(complaint_of([&] { transformed(problem, parse_spec("hsm2dl(devices=6)", "test")); }) ==
        "hsm2dl: 6 devices cannot be halved again and again; 4 or 8 can");
  auto chain = make_problem(synthetic_model("uniform:4"), load_platform("ideal"), {});
  CHECK(complaint_of([&] { transformed(std::get<Problem>(chain), parse_spec("alpa", "test")); }) ==
        "alpa: 'uniform:4' is a chain of stages, whose operators are not known: give a graph, such as "
        "transformer:view=graph");
}
