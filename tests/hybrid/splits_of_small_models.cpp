#include "tests/hybrid/splits_of_small_models.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>
#include <variant>

#include "platforms/platform_file.h"
#include "sim/core/op_attribute.h"
#include "tests/generate/random.h"

namespace plimsoll {
namespace {

/// Values lie as (rows, features) or (samples, height, width, channels); ops compute over the last dimension.
class ModelBuilder {
 public:
  ModelBuilder(std::uint64_t seed, std::uint32_t operators) : random_(seed), operators_(operators) {
    graph_.name = "small";
    graph_.source.dtype = "bf16";
    are_pictures_ = random_.chance(0.3);
    if (are_pictures_) {
      const std::int64_t side = std::int64_t{7} << random_.below(3);
      leading_ = {std::int64_t{8} << random_.below(4), side, side};
    } else {
      leading_ = {std::int64_t{512} << random_.below(4)};
    }
  }

  Graph run() {
    values_.push_back({tensor("x", TensorKind::input, shape(extent())), false});
    for (std::uint32_t k = 0; k + 1 < operators_; ++k) add_operator(std::to_string(k));
    const TensorId last = values_.back().tensor;
    const TensorId d = tensor("d", TensorKind::gradient, graph_[last].shape);
    op("loss", pattern("c", "->", "c"), Phase::forward, 0, {last}, {d});
    gradients_[last.index] = d;
    for (auto backward = backwards_.rbegin(); backward != backwards_.rend(); ++backward) (*backward)();
    return std::move(graph_);
  }

 private:
  struct Value {
    TensorId tensor;
    bool has_gradient;
  };
  using Shape = std::vector<std::int64_t>;

  std::int64_t extent() { return (are_pictures_ ? std::int64_t{64} : std::int64_t{512}) << random_.below(3); }
  Shape shape(std::int64_t features) const {
    Shape made = leading_;
    made.push_back(features);
    return made;
  }
  std::string operand(const std::string& last) const { return (are_pictures_ ? "b - - " : "r ") + last; }
  std::string pattern(const std::string& from, const std::string& arrow, const std::string& to) const {
    return operand(from) + " " + arrow + " " + operand(to);
  }
  std::string weight(const std::string& from, const std::string& to) const {
    return (are_pictures_ ? "- - " : "") + from + " " + to;
  }

  TensorId tensor(std::string name, TensorKind kind, Shape shape) {
    Tensor made;
    made.name = std::move(name);
    made.kind = kind;
    made.bytes = Bytes{2};
    for (const std::int64_t each : shape) made.bytes = each * made.bytes;
    made.shape = std::move(shape);
    made.dtype = "bf16";
    made.storage = id_at<StorageId>(graph_.storages++);
    graph_.tensors.push_back(std::move(made));
    return id_at<TensorId>(graph_.tensors.size() - 1);
  }

  void op(std::string name, std::string loop, Phase phase, double flops, std::vector<TensorId> inputs,
          std::vector<TensorId> outputs, const std::string& of = {}) {
    Op made;
    made.name = std::move(name);
    made.kind = "op";
    made.phase = phase;
    made.flops = Flops{flops};
    made.duration = Seconds{flops / 1e14};
    made.bytes_moved = Bytes{0};
    for (const auto* list : {&inputs, &outputs}) {
      for (const TensorId t : *list) *made.bytes_moved += graph_[t].bytes;
    }
    made.inputs = std::move(inputs);
    made.outputs = std::move(outputs);
    made.attributes = {{"loop", std::move(loop)}};
    if (!of.empty()) made.attributes.emplace_back("of", of);
    graph_.ops.push_back(std::move(made));
  }

  /// A further contribution is added by an op of the forward op that made it.
  void contribute(const Value& to, TensorId d, const std::string& of) {
    if (!to.has_gradient) return;
    const auto [known, fresh] = gradients_.try_emplace(to.tensor.index, d);
    if (fresh) return;
    const TensorId sum = tensor("sum of " + of, TensorKind::gradient, graph_[d].shape);
    if (known->second == d) {  // the same twice
      op(of + " double", pattern("c", "->", "c"), Phase::backward, 0, {d}, {sum}, of);
    } else {
      op(of + " sum", operand("c") + ", " + operand("c") + " -> " + operand("c"), Phase::backward, 0,
         {known->second, d}, {sum}, of);
    }
    known->second = sum;
  }

  void add_operator(const std::string& number) {
    const Value from = values_.back();
    const std::int64_t features = graph_[from.tensor].shape.back();
    std::vector<Value> alike;
    for (const Value& each : values_) {
      if (each.tensor != from.tensor && graph_[each.tensor].shape.back() == features) alike.push_back(each);
    }
    if (!alike.empty() && random_.chance(0.4)) {
      return add_sum(number, from, alike[random_.below(static_cast<std::uint32_t>(alike.size()))]);
    }
    if (random_.chance(0.25)) return add_elementwise(number, from);
    add_product(number, from, random_.chance(0.4) ? features : extent());
  }

  void add_sum(const std::string& number, Value one, Value other) {
    const std::string name = "sum" + number;
    const Value made{tensor("y" + number, TensorKind::activation, graph_[one.tensor].shape),
                     one.has_gradient || other.has_gradient};
    op(name, operand("c") + ", " + operand("c") + " -> " + operand("c"), Phase::forward, 0, {one.tensor, other.tensor},
       {made.tensor});
    values_.push_back(made);
    backwards_.emplace_back([=, this] {
      if (!made.has_gradient) return;
      const TensorId d = gradients_.at(made.tensor.index);
      contribute(one, d, name);
      contribute(other, d, name);
    });
  }

  void add_elementwise(const std::string& number, Value from) {
    const std::string name = "bend" + number;
    const Value made{tensor("y" + number, TensorKind::activation, graph_[from.tensor].shape), from.has_gradient};
    op(name, pattern("c", "->", "c"), Phase::forward, 0, {from.tensor}, {made.tensor});
    values_.push_back(made);
    backwards_.emplace_back([=, this] {
      if (!made.has_gradient) return;
      const TensorId d = gradients_.at(made.tensor.index),
                     dx = tensor("gradient of x of " + name, TensorKind::gradient, graph_[d].shape);
      op(name + " input", operand("c") + ", " + operand("c") + " -> " + operand("c"), Phase::backward, 0,
         {d, from.tensor}, {dx}, name);
      contribute(from, dx, name);
    });
  }

  void add_product(const std::string& number, Value from, std::int64_t features) {
    const std::string name = "product" + number;
    const std::int64_t kernel = are_pictures_ ? 3 : 1;
    const Shape& read = graph_[from.tensor].shape;
    Shape weights{read.back(), features};
    if (are_pictures_) weights.insert(weights.begin(), {kernel, kernel});
    double flops = 2.0 * static_cast<double>(features * kernel * kernel);
    for (const std::int64_t each : read) flops *= static_cast<double>(each);
    const TensorId w = tensor("w" + number, TensorKind::parameter, weights);
    const Value made{tensor("y" + number, TensorKind::activation, shape(features)), true};
    op(name, operand("i") + ", " + weight("i", "j") + " -> " + operand("j"), Phase::forward, flops, {from.tensor, w},
       {made.tensor});
    values_.push_back(made);
    backwards_.emplace_back([=, this] {
      const auto found = gradients_.find(made.tensor.index);
      if (found == gradients_.end()) return;
      const TensorId d = found->second,
                     dw = tensor("gradient of " + graph_[w].name, TensorKind::parameter_gradient, graph_[w].shape);
      graph_.tensors[dw.index].gradient_of = w;
      op(name + " weight", operand("i") + ", " + operand("j") + " -> " + weight("i", "j"), Phase::backward, flops,
         {from.tensor, d}, {dw}, name);
      if (!from.has_gradient) return;
      const TensorId dx = tensor("gradient of x of " + name, TensorKind::gradient, graph_[from.tensor].shape);
      op(name + " input", operand("j") + ", " + weight("i", "j") + " -> " + operand("i"), Phase::backward, flops,
         {d, w}, {dx}, name);
      contribute(from, dx, name);
    });
  }

  Random random_;
  std::uint32_t operators_;
  bool are_pictures_ = false;
  Shape leading_;
  Graph graph_;
  std::vector<Value> values_;
  std::map<std::uint32_t, TensorId> gradients_;
  std::vector<std::function<void()>> backwards_;
};

CollectiveTimes times_on(const Platform& platform, const Mesh& mesh) {
  auto made = CollectiveTimes::on(platform, mesh);
  return std::get<CollectiveTimes>(std::move(made));
}

}  // namespace

Problem small_model(std::uint64_t seed, std::uint32_t operators, std::uint32_t devices) {
  auto made = make_problem(ModelBuilder(seed, operators).run(), load_platform("a100_sxm_8"), {});
  if (const std::string* why = std::get_if<std::string>(&made)) throw std::logic_error(*why);
  Problem problem = std::get<Problem>(std::move(made));
  while (problem.platform.devices.size() > devices) {
    problem.platform.memories[problem.platform.devices.back().memory.index].device.reset();
    problem.platform.devices.pop_back();
  }
  for (Device& device : problem.platform.devices) device.host = MemoryId{0};
  return problem;
}

AllSplits::AllSplits(const Problem& problem, Mesh mesh)
    : problem_(problem), mesh_(std::move(mesh)), times_(times_on(problem.platform, mesh_)) {
  const Graph& graph = problem.graph;
  std::map<std::string, std::size_t> by_name;
  for (std::uint32_t o = 0; o < graph.ops.size(); ++o) {
    std::variant<OpLoop, std::string> loop = loop_of(graph, OpId{o});
    if (const std::string* why = std::get_if<std::string>(&loop)) throw std::logic_error(*why);
    loops_.push_back(std::get<OpLoop>(std::move(loop)));
    const auto of = attribute_of(graph.ops[o], "of");
    const std::size_t place = of ? by_name.at(std::string(*of)) : operators_.size();
    if (!of) {
      by_name[graph.ops[o].name] = place;
      operators_.emplace_back();
    }
    operators_[place].ops.push_back(OpId{o});
  }
  for (Operator& each : operators_) add_ways(each);
  add_uses();
}

const std::vector<std::optional<std::uint8_t>>& AllSplits::cuts(std::size_t o, std::uint32_t way) const {
  return operators_[o].ways[way].cuts;
}

AllSplits::Choices AllSplits::any(Random& random) const {
  Choices made;
  for (const Operator& each : operators_) made.push_back(random.below(static_cast<std::uint32_t>(each.ways.size())));
  return made;
}

Layout AllSplits::layout(OpId op, std::size_t operand, bool is_output, const Way& way) const {
  const OpLoop& loop = loops_[op.index];
  const std::vector<std::uint8_t>& dims = (is_output ? loop.outputs : loop.inputs)[operand];
  Layout made;
  for (const std::optional<std::string>& name : way.names) {
    AxisLayout& along = made.emplace_back();
    if (!name || !loop.dim(*name)) continue;
    for (std::uint8_t d = 0; d < dims.size(); ++d) {
      if (loop.dims[dims[d]].name == *name) along = {AxisLayout::Kind::cut, d};
    }
    if (along.kind == AxisLayout::Kind::whole && is_output) along.kind = AxisLayout::Kind::partial;
  }
  return made;
}

double AllSplits::bytes(TensorId t, const Layout& layout) const {
  auto share = static_cast<double>(problem_.graph[t].bytes.count);
  for (std::size_t a = 0; a < layout.size(); ++a) {
    if (layout[a].kind == AxisLayout::Kind::cut) share /= mesh_.axes[a].ranks;
  }
  return share;
}

namespace {

/// Whether shares along one dimension become shares along another one.
bool exchanges(const Layout& from, const Layout& to) {
  if (from == to) return false;
  const auto steps = joint_relayouts(from, to);
  return std::ranges::any_of(steps.value(),
                             [](const JointRelayout& step) { return step.kind == CollectiveKind::all_to_all; });
}

}  // namespace

double AllSplits::relayout(TensorId t, const Layout& from, const Layout& to) {
  if (from == to) return 0;
  double sum = 0;
  Layout now = from;
  const auto steps = joint_relayouts(from, to);
  for (const JointRelayout& step : steps.value()) {
    const bool grows = step.kind == CollectiveKind::all_gather;
    if (step.kind) {
      const Bytes all{static_cast<std::int64_t>(bytes(t, grows ? step.after : now))};
      sum += times_.seconds(*step.kind, all, step.axes).value;
    }
    now = step.after;
  }
  return sum;
}

void AllSplits::add_ways(Operator& made) {
  const Device& device = problem_.platform.devices.front();
  const OpLoop& forward = loops_[made.ops.front().index];
  std::vector<Way> ways(1);
  for (std::size_t a = 0; a < mesh_.axes.size(); ++a) {
    std::vector<Way> longer;
    for (const Way& way : ways) {
      for (std::size_t d = 0; d <= forward.dims.size(); ++d) {
        const bool is_none = d == forward.dims.size();
        if (!is_none && !forward.dims[d].cuttable) continue;
        Way next = way;
        next.names.emplace_back();
        next.cuts.emplace_back();
        if (!is_none) {
          next.names.back() = forward.dims[d].name;
          next.cuts.back() = static_cast<std::uint8_t>(d);
        }
        longer.push_back(std::move(next));
      }
    }
    ways = std::move(longer);
  }
  for (Way& way : ways) {
    const auto ranks_of = [&](const std::string& name) {
      std::int64_t ranks = 1;
      for (std::size_t a = 0; a < mesh_.axes.size(); ++a) ranks *= way.names[a] == name ? mesh_.axes[a].ranks : 1;
      return ranks;
    };
    const bool divides = std::ranges::all_of(
        forward.dims, [&](const LoopDim& dim) { return dim.name == "-" || dim.size % ranks_of(dim.name) == 0; });
    if (!divides) continue;
    for (const OpId id : made.ops) {
      way.sums_of.push_back(0);
      const Op& op = problem_.graph[id];
      double share = 1, moved = 0;
      for (const LoopDim& dim : loops_[id.index].dims) {
        if (dim.name != "-") share *= static_cast<double>(ranks_of(dim.name));
      }
      for (std::size_t k = 0; k < op.inputs.size(); ++k) moved += bytes(op.inputs[k], layout(id, k, false, way));
      for (std::size_t k = 0; k < op.outputs.size(); ++k) {
        const Layout lies = layout(id, k, true, way);
        moved += bytes(op.outputs[k], lies);
        if (problem_.graph[op.outputs[k]].kind != TensorKind::parameter_gradient) continue;
        way.sums_of.back() += relayout(op.outputs[k], lies, [&] {
          Layout whole = lies;
          for (AxisLayout& along : whole) along = along.kind == AxisLayout::Kind::partial ? AxisLayout{} : along;
          return whole;
        }());
      }
      const double work =
          std::max(op.flops->count / share / device.peak.at("bf16").value, moved / device.memory_bandwidth->value);
      way.work_of.push_back(work + device.launch_overhead.value);
      way.work += work;
      way.sums += way.sums_of.back();
    }
    made.ways.push_back(std::move(way));
  }
  std::ranges::stable_sort(made.ways, {}, &Way::work);
}

void AllSplits::add_uses() {
  const Graph& graph = problem_.graph;
  struct Place {
    std::size_t o;
    OpId op;
    std::size_t operand;
    bool is_output;
  };
  place_of_.resize(graph.ops.size());
  counted_.resize(graph.ops.size());
  for (std::size_t o = 0; o < operators_.size(); ++o) {
    for (std::size_t k = 0; k < operators_[o].ops.size(); ++k) place_of_[operators_[o].ops[k].index] = {o, k};
  }
  for (std::uint32_t t = 0; t < graph.tensors.size(); ++t) {
    std::optional<Place> home;
    bool is_first = true, is_first_behind = true;
    const auto visit = [&](const Place& place) {
      if (!home) {
        home = place;
        return;
      }
      const bool is_along = home->o <= place.o;
      const bool is_backward = graph[place.op].phase == Phase::backward,
                 sums = std::exchange(is_first, false),  // where the value is partial sums
          begins = is_backward && std::exchange(is_first_behind, false);
      Use use{std::min(home->o, place.o), std::max(home->o, place.o), place.op, sums || begins, {}, {}};
      for (const Way& one : operators_[use.one].ways) {
        for (const Way& other : operators_[use.other].ways) {
          const Way &from = is_along ? one : other, &to = is_along ? other : one;
          if (use.one == use.other && &one != &other) {
            use.seconds.push_back(0);
            use.least.push_back(0);
            continue;
          }
          const Layout made = layout(home->op, home->operand, home->is_output, from);
          const Layout needed = layout(place.op, place.operand, false, to);
          use.seconds.push_back(relayout(TensorId{t}, made, needed));
          const bool is_partial = std::ranges::any_of(
              made, [](const AxisLayout& along) { return along.kind == AxisLayout::Kind::partial; });
          const bool may_stay = begins && exchanges(made, needed);
          use.least.push_back((is_partial && !sums) || may_stay ? 0 : use.seconds.back());
        }
      }
      if (use.is_counted) counted_[use.reader.index].push_back(uses_.size());
      uses_.push_back(std::move(use));
    };
    for (std::uint32_t o = 0; o < graph.ops.size(); ++o) {
      const Op& op = graph.ops[o];
      for (std::size_t k = 0; k < op.inputs.size(); ++k) {
        if (op.inputs[k] == TensorId{t}) visit({place_of_[o].first, OpId{o}, k, false});
      }
      for (std::size_t k = 0; k < op.outputs.size(); ++k) {
        if (op.outputs[k] == TensorId{t}) visit({place_of_[o].first, OpId{o}, k, true});
      }
    }
  }
}

/// What the operator adds to those before it.
double AllSplits::added(const Choices& choices, std::size_t o, bool by_bound) const {
  const Way& way = operators_[o].ways[choices[o]];
  double sum = by_bound ? launched(o, way) : way.work + way.sums;
  for (const Use& use : uses_) {
    if (use.other != o || (by_bound && !use.is_counted)) continue;
    sum += (by_bound ? use.least : use.seconds)[place(use, choices)];
  }
  return sum;
}

double AllSplits::launched(std::size_t o, const Way& way) const {
  const Device& device = problem_.platform.devices.front();
  return way.work + static_cast<double>(operators_[o].ops.size()) * device.launch_overhead.value;
}

std::size_t AllSplits::place(const Use& use, const Choices& choices) const {
  return choices[use.one] * operators_[use.other].ways.size() + choices[use.other];
}

double AllSplits::cost(const Choices& choices) const {
  double sum = 0;
  for (std::size_t o = 0; o < operators_.size(); ++o) sum += added(choices, o, false);
  return sum;
}

double AllSplits::bound(const Choices& choices) const {
  double now = 0, summed = 0;
  for (std::size_t op = 0; op < place_of_.size(); ++op) {
    const auto [o, k] = place_of_[op];
    const Way& way = operators_[o].ways[choices[o]];
    for (const std::size_t u : counted_[op]) now += uses_[u].least[place(uses_[u], choices)];
    now += way.work_of[k];
    if (way.sums_of[k] > 0) summed = std::max(summed, now) + way.sums_of[k];
  }
  return std::max(now, summed);
}

SplitPlan AllSplits::plan(const Choices& choices) const {
  SplitPlan made{mesh_, {}};
  made.cuts.assign(problem_.graph.ops.size(), std::vector<std::optional<std::uint8_t>>(mesh_.axes.size()));
  for (std::size_t o = 0; o < operators_.size(); ++o) {
    const Way& way = operators_[o].ways[choices[o]];
    for (const OpId id : operators_[o].ops) {
      for (std::size_t a = 0; a < mesh_.axes.size(); ++a) {
        if (way.names[a]) made.cuts[id.index][a] = loops_[id.index].dim(*way.names[a]);
      }
    }
  }
  return made;
}

std::size_t AllSplits::visit(bool by_bound, const double& limit,
                             const std::function<void(const Choices&)>& leaf) const {
  const auto work = [&](std::size_t o, const Way& way) { return by_bound ? launched(o, way) : way.work; };
  std::vector<double> rest(operators_.size() + 1, 0);  // the least that operators from here on add
  for (std::size_t o = operators_.size(); o-- > 0;) rest[o] = rest[o + 1] + work(o, operators_[o].ways.front());
  Choices choices(operators_.size(), 0);
  std::size_t visited = 0;
  const std::function<void(std::size_t, double)> from = [&](std::size_t o, double sum) {
    if (o == operators_.size()) {
      if (by_bound && bound(choices) >= limit) return;
      ++visited;
      leaf(choices);
      return;
    }
    for (choices[o] = 0; choices[o] < operators_[o].ways.size(); ++choices[o]) {
      if (sum + work(o, operators_[o].ways[choices[o]]) + rest[o + 1] >= limit) break;  // the ways behind work longer
      const double now = sum + added(choices, o, by_bound);
      if (now + rest[o + 1] < limit) from(o + 1, now);
    }
  };
  from(0, 0);
  return visited;
}

}  // namespace plimsoll
