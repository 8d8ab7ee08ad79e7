#include "experiments/fits/needs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <variant>

#include "experiments/study/memory_by_kind.h"
#include "experiments/study/model.h"
#include "platforms/platform_file.h"
#include "sim/io/input_error.h"
#include "sim/measure/lower_bounds.h"
#include "sim/measure/memory_profile.h"
#include "sim/memory/caching_allocator.h"

namespace plimsoll {
namespace {

/// A size that no plan has: what is asked within it is not held back.
constexpr Bytes no_limit{std::int64_t{1} << 52};

constexpr std::string_view main_copy = "fp32 copy of ", average = "average of ";

/// In the order of the table.
struct Sort {
  std::string_view name;
  std::size_t kind;
};
constexpr std::size_t of(TensorKind kind) {
  return static_cast<std::size_t>(kind);
}
constexpr std::size_t main_weights = memory_kinds, averages = memory_kinds + 1, evaluated = memory_kinds + 2;
constexpr std::array sorts{Sort{"weights", of(TensorKind::parameter)},
                           Sort{main_weights_part, main_weights},
                           Sort{averages_part, averages},
                           Sort{states_part, of(TensorKind::optimizer_state)},
                           Sort{"gradients of weights", of(TensorKind::parameter_gradient)},
                           Sort{"activations", of(TensorKind::activation)},
                           Sort{"their gradients", of(TensorKind::gradient)},
                           Sort{"packed values", packed_kind},
                           Sort{"inputs", of(TensorKind::input)},
                           Sort{"workspaces", workspace_kind},
                           Sort{evaluation_part, evaluated}};

/// Batches that are on a device before their turn, copied on a stream of their own, whose pools nothing else uses.
struct BatchesAhead {
  Bytes live, reserved, expandable;
};

Bytes reserved_for(const std::vector<Bytes>& requests, const CachingSettings& settings) {
  CachingAllocator allocator(settings);
  for (const Bytes bytes : requests) allocator.allocate(bytes, StreamId{0});
  return allocator.reserved();
}

BatchesAhead batches_ahead(const AskedTraining& training, const Graph& graph) {
  BatchesAhead made;
  std::vector<Bytes> requests;
  for (std::uint32_t batch = 0; batch < training.batches_ahead; ++batch) {
    for (const Tensor& tensor : graph.tensors) {
      if (tensor.kind != TensorKind::input || tensor.bytes == Bytes{0}) continue;
      requests.push_back(tensor.bytes);
      made.live += tensor.bytes;
    }
  }
  if (requests.empty()) return made;
  made.reserved = reserved_for(requests, question_of(training, no_limit).allocator.caching);
  made.expandable = reserved_for(requests, expandable_segments().caching);
  return made;
}

/// Fills parts, moment and live bytes.
void describe_peak(const Problem& problem, const Answer& answer, TrainingNeeds& needs) {
  const std::vector<DeviceMetrics>& devices = answer.metrics->devices;
  const auto fullest = std::ranges::max_element(devices, {}, &DeviceMetrics::peak_live);
  const Device& device = problem.platform.devices[static_cast<std::size_t>(fullest - devices.begin())];
  const AtPeak peak = at_peak(*answer.schedule, *answer.timeline, problem.platform, device.memory);
  std::array<Bytes, memory_kinds + 3> bytes{};
  for (const BufferId b : peak.buffers) {
    const Buffer& buffer = (*answer.schedule)[b];
    const std::string& name = problem.graph[buffer.tensor].name;
    const std::size_t kind = memory_kind(problem.graph, buffer);
    const bool is_state = kind == of(TensorKind::optimizer_state);
    const bool is_main = is_state && name.starts_with(main_copy), is_average = is_state && name.starts_with(average);
    bytes[is_main ? main_weights : is_average ? averages : kind] += buffer.bytes;
  }
  const MemoryPeak& moment = answer.timeline->peaks[device.memory.index];
  const bool is_evaluation = !moment.at_start && (*answer.schedule)[moment.step].kind == StepKind::evaluation;
  bytes[is_evaluation ? evaluated : workspace_kind] += peak.workspace;
  for (const Sort& sort : sorts) {
    if (bytes[sort.kind] > Bytes{0}) needs.parts.push_back({std::string(sort.name), bytes[sort.kind]});
  }
  needs.live = peak.bytes;
  if (moment.at_start) {
    needs.moment = "from the start";
  } else {
    const Step& step = (*answer.schedule)[moment.step];
    needs.moment =
        fmt::format("in '{}'", step.op == no_op ? std::string(written(step.kind)) : problem.graph[step.op].name);
  }
}

/// 0 where a shape is not known.
std::int64_t parameters_of(const Graph& graph) {
  std::int64_t numbers = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind != TensorKind::parameter) continue;
    if (tensor.shape.empty()) return 0;
    std::int64_t of_tensor = 1;
    for (const std::int64_t extent : tensor.shape) of_tensor *= extent;
    numbers += of_tensor;
  }
  return numbers;
}

Bytes checkpoint_of(const Graph& graph) {
  std::set<TensorId> trained;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.gradient_of) trained.insert(*tensor.gradient_of);
  }
  Bytes bytes;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    const TensorKind kind = graph.tensors[t].kind;
    const bool is_trained = kind == TensorKind::parameter && (trained.empty() || trained.contains(id_at<TensorId>(t)));
    if (is_trained || kind == TensorKind::optimizer_state) bytes += graph.tensors[t].bytes;
  }
  return bytes;
}

Bytes most_reserved(const Answer& answer) {
  return std::ranges::max(answer.reserved, {}, &ReservedPeak::reserved).reserved;
}

/// Of the same schedule.
Bytes reserved_by_expandable(Question question, const Problem& problem, const Schedule& schedule) {
  question.allocator = expandable_segments();
  return most_reserved(answer(question, problem, schedule));
}

TrainingNeeds needs_of(const AskedTraining& training, const Question& question, const BudgetedProblem& made,
                       bool is_plain) {
  const Answer answer = std::move(plimsoll::answer(question, made.problem, std::span(&made.budget, 1)).front());
  TrainingNeeds needs;
  needs.fits = answer.feasible();
  needs.reason = answer.reason;
  const Trace model = load_model(training.trace);  // passes may forget shapes
  if (const auto* graph = std::get_if<Graph>(&model.model)) needs.parameters = parameters_of(*graph);
  needs.checkpoint = checkpoint_of(made.problem.graph);
  needs.errors = reserve_errors(made.problem.graph);
  if (!answer.schedule) return needs;
  describe_peak(made.problem, answer, needs);
  needs.reserved = most_reserved(answer);
  if (is_plain) needs.expandable = reserved_by_expandable(question, made.problem, *answer.schedule);
  if (const BatchesAhead ahead = batches_ahead(training, made.problem.graph); ahead.live > Bytes{0}) {
    needs.parts.push_back({std::string(ahead_part), ahead.live});
    needs.live += ahead.live;
    needs.reserved += ahead.reserved;
    if (is_plain) needs.expandable += ahead.expandable;
    needs.ahead = ahead.reserved;
  }
  needs.host = host_peak(*answer.metrics);
  needs.time = answer.metrics->makespan;
  // One device stands for those that share all.
  needs.devices = std::max(training.devices, static_cast<std::uint32_t>(devices_used(*answer.schedule)));
  return needs;
}

/// What is left of the memory beside batches that are there before their turn.
Bytes beside_batches(const AskedTraining& training, Bytes memory) {
  if (training.batches_ahead == 0) return memory;
  const Problem problem = problem_of(question_of(training, memory));
  return std::max(Bytes{1}, memory - batches_ahead(training, problem.graph).reserved);
}

TrainingNeeds needs_within(const AskedTraining& training, Bytes memory, bool is_plain = false) {
  const Question question = question_of(training, beside_batches(training, memory));
  return needs_of(training, question, budgeted_problem_of(question), is_plain);
}

}  // namespace

Bytes Reserves::room(std::uint32_t devices) const {
  const Bytes beside = needed(Bytes{0}, devices);
  const auto left = static_cast<double>(std::max(std::int64_t{0}, capacity.count - beside.count));
  return Bytes{static_cast<std::int64_t>(std::floor(left / (1 + margin)))};
}

Bytes Reserves::needed(Bytes reserved, std::uint32_t devices) const {
  const Bytes beside = devices > 1 ? context + communicator : context;
  return beside + Bytes{static_cast<std::int64_t>(std::ceil(static_cast<double>(reserved.count) * (1 + margin)))};
}

TrainingNeeds needs_within_room(const AskedTraining& training, const Reserves& reserves) {
  return needs_within(training, reserves.room(training.devices));
}

namespace {

/// What no plan of activations can do without: the largest working set of an op, with parameters, and with states
/// unless a pass changes them.
Bytes least_of_plans(const AskedTraining& training, const Problem& problem) {
  const bool changes_states = training.strategy.find("8bit") != std::string::npos;
  return lower_bounds(problem, 1, changes_states ? Stays::parameters : Stays::all).memory;
}

}  // namespace

TrainingNeeds needs_of_planned(AskedTraining& training, const Reserves& reserves) {
  constexpr std::array shares{1.0, 0.95, 0.88, 0.8};
  TrainingNeeds needs;
  const Bytes room = beside_batches(training, reserves.room(training.devices));
  BudgetedProblem made = budgeted_problem_of(question_of(training, room));
  const Bytes least = least_of_plans(training, made.problem);
  for (const double share : shares) {
    const Bytes budget{static_cast<std::int64_t>(share * static_cast<double>(room.count))};
    if (budget < least) break;
    training.budget = made.budget = budget;
    needs = needs_of(training, question_of(training, room), made, false);
    if (needs.fits || needs.parts.empty()) break;  // parts of a plan that the allocator has no room for
  }
  return needs;
}

std::optional<Bytes> needed_by_foreach(AskedTraining training, const TrainingNeeds& plain, const Reserves& reserves) {
  training.update_kernels = UpdateKernels::foreach;
  const TrainingNeeds needs = needs_within(training, no_limit);
  return needs.live > plain.live ? std::optional(reserves.needed(needs.reserved)) : std::nullopt;
}

TrainingNeeds needs_of_plain(const AskedTraining& training, const Reserves& reserves) {
  TrainingNeeds needs = needs_within(training, reserves.room(), true);
  if (needs.fits) return needs;
  TrainingNeeds unlimited = needs_within(training, no_limit, true);
  if (unlimited.parts.empty()) {
    throw InputError(fmt::format("{}: plain training needs more than {}", training.trace, format_bytes(no_limit)));
  }
  unlimited.fits = false;
  if (unlimited.reason.empty()) unlimited.reason = needs.reason;
  return unlimited;
}

}  // namespace plimsoll
