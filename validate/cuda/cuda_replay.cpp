#include "validate/cuda/cuda_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/model/problem.h"
#include "validate/cuda/cuda_backend.h"
#include "validate/cuda/cuda_machine.h"
#include "validate/cuda/cuda_objects.h"
#include "validate/cuda/launch.h"
#include "validate/cuda/memory/run_rooms.h"
#include "validate/cuda/step_range.h"
#include "validate/device/issue_order.h"
#include "validate/networks/initial_values.h"
#include "validate/replay_plan.h"

namespace plimsoll {
namespace {

/// Bytes that a step poisons before it begins.
struct Stain {
  MemoryId memory;
  std::byte* address = nullptr;
  Bytes bytes;
};

/// One run on the devices of a platform, or on the one of a rank.
class CudaReplay {
 public:
  CudaReplay(const Problem& problem, const Schedule& schedule, const ReplayPlan& plan, CudaNetwork& cuda,
             CudaMachine& machine, const GpuRange& gpus, Allocation allocation, const ReplayOptions& options)
      : graph_(problem.graph),
        platform_(problem.platform),
        schedule_(schedule),
        plan_(plan),
        cuda_(cuda),
        machine_(machine),
        gpus_(gpus),
        options_(options) {
    make_streams();
    if (allocation == Allocation::stream_ordered) make_free_events();
    rooms_.emplace(problem, schedule, plan, machine, gpus, allocation,
                   RunEvents{[this](StreamId s) { return *streams_[s.index]; },
                             [this](StepId s) { return stream_of(s); }, [this](StepId s) { return finish_of(s); }},
                   options.empties_pools);
  }

  /// Data, and clocks.
  void prepare() {
    make_inputs();
    make_resident();
    begin_clocks();
  }

  /// The step takes memory and waits for what comes before it; then its clock begins.
  void begin(StepId);
  void load(StepId);
  void copy(StepId);
  /// Its clock ends.
  void finish(StepId s) {
    set_gpu(gpu_of(s));
    CUDA_CHECK(cudaEventRecord(finish_of(s), stream_of(s)));
  }
  /// What it has done with may be given to others.
  void end(StepId);

  cudaStream_t stream_of(StepId s) const { return *streams_[schedule_[s].stream.index]; }
  KernelArguments arguments_of(StepId, const PlannedCall&) const;
  /// Of a call that accumulates: its contribution is made in the workspace.
  KernelArguments contribution(const PlannedCall& call, const KernelArguments& sum) const {
    return contribution_arguments(cuda_.network.graph, cuda_.network.graph[call.op], sum);
  }
  /// `made`: where the kernel makes its results, of a call that accumulates its contribution.
  void compute(StepId, const PlannedCall&, const KernelArguments& made);
  /// Adds the contribution of a call that accumulates: the same sum in the same order as plain training's.
  void add(StepId, const PlannedCall&, const KernelArguments& sum, const KernelArguments& made);

  Replayed measured(std::span<const IssueEvent> order) {
    synchronize();
    Replayed measured;
    measured.timeline = measured_timeline(schedule_, platform_, order, dates());
    measured.allocators = rooms_->peaks();
    if (options_.keeps_values) keep_values(measured);
    return measured;
  }

 private:
  // --- before: streams, events, memories, data

  std::size_t gpu_of(StreamId stream) const { return gpus_.of(schedule_[stream].device); }
  std::size_t gpu_of(StepId step) const { return gpu_of(schedule_[step].stream); }
  std::optional<std::size_t> gpu_of(MemoryId memory) const { return plimsoll::gpu_of(platform_, memory, gpus_); }

  void make_streams() {
    for (std::size_t s = 0; s < schedule_.streams.size(); ++s) {
      machine_.gpu(gpu_of(id_at<StreamId>(s)));
      set_gpu(gpu_of(id_at<StreamId>(s)));
      streams_.push_back(new_stream());
    }
    for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
      set_gpu(gpu_of(id_at<StepId>(s)));
      starts_.push_back(new_event());
      finishes_.push_back(new_event());
    }
  }

  bool frees(StepId s) const {
    return !schedule_.buffers_in(schedule_[s].frees).empty() || workspace_of(schedule_, plan_, s) > Bytes{0};
  }

  void make_free_events() {
    frees_.resize(schedule_.steps.size());
    for (std::size_t s = 0; s < frees_.size(); ++s) {
      if (!frees(id_at<StepId>(s))) continue;
      set_gpu(gpu_of(id_at<StepId>(s)));
      frees_[s] = new_event();
    }
  }

  cudaEvent_t finish_of(StepId s) const { return *finishes_[s.index]; }

  /// Inputs wait in pinned memory, so that loading is one copy.
  void make_inputs() {
    if (cuda_.inputs.size() != schedule_.micro_batches) {
      cuda_.inputs = input_values(cuda_.network, schedule_.micro_batches);
    }
    for (const std::vector<std::byte>& value : cuda_.inputs) {
      const Bytes bytes{static_cast<std::int64_t>(value.size())};
      const std::optional<Grant> grant = machine_.staging(gpus_.rank).take(bytes, StreamId{});
      if (!grant) throw NoRoom{fmt::format("out of memory on the host: inputs need {} B", bytes.count)};
      std::ranges::copy(value, grant->address);
      inputs_.emplace_back(grant->address, bytes);
    }
  }

  void make_resident() {
    std::map<std::string, const Tensor*> known;  // the network's tensors have shapes, by which numbers are scaled
    for (const Tensor& tensor : cuda_.network.graph.tensors) known[tensor.name] = &tensor;
    for (const BufferId b : schedule_.resident) rooms_->open(b, std::nullopt);
    synchronize();  // stream-ordered memory is there when its stream has come to it
    for (const BufferId b : schedule_.resident) {
      const Buffer& buffer = schedule_[b];
      const Tensor& tensor = *known.at(graph_[buffer.tensor].name);
      if (tensor.kind != TensorKind::parameter) {  // begins as zeros
        fill_now(buffer.memory, rooms_->address_of(b), buffer.range_length);
        continue;
      }
      std::vector<std::byte>& value = cuda_.initial_values[tensor.name];
      if (value.empty()) value = initial_value(tensor);
      copy_now(rooms_->address_of(b), value.data() + buffer.range_offset.count, buffer.range_length);
    }
    synchronize();
  }

  void fill_now(MemoryId memory, std::byte* address, Bytes bytes) const {
    const auto size = static_cast<std::size_t>(bytes.count);
    if (size == 0) return;
    if (gpu_of(memory)) {
      set_gpu(*gpu_of(memory));
      CUDA_CHECK(cudaMemset(address, 0, size));
    } else {
      std::memset(address, 0, size);
    }
  }

  static void copy_now(void* to, const void* from, Bytes bytes) {
    if (bytes == Bytes{0}) return;
    CUDA_CHECK(cudaMemcpy(to, from, static_cast<std::size_t>(bytes.count), cudaMemcpyDefault));
  }

  void synchronize() {
    for (std::size_t g = 0; g < gpus_.count; ++g) {
      set_gpu(gpus_.first + g);
      CUDA_CHECK(cudaDeviceSynchronize());
    }
  }

  /// One base event a device, all at one moment as far as the host can see.
  void begin_clocks() {
    std::vector<OwnedStream> streams;
    for (std::size_t g = 0; g < gpus_.count; ++g) {
      set_gpu(gpus_.first + g);
      streams.push_back(new_stream());
      bases_.push_back(new_event());
    }
    synchronize();
    for (std::size_t g = 0; g < bases_.size(); ++g) {
      set_gpu(gpus_.first + g);
      CUDA_CHECK(cudaEventRecord(*bases_[g], *streams[g]));
    }
    synchronize();
  }

  // --- the life of a step

  void wait_for(StepId s, StepId earlier);
  void poison(const Stain&, StepId);
  void on_host(StepId, std::function<void()> work);

  // --- after

  static Seconds between(cudaEvent_t base, cudaEvent_t event) {
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, base, event));
    return Seconds{double{milliseconds} / 1e3};
  }

  std::vector<Interval> dates() const {
    std::vector<Interval> dates;
    for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
      const OwnedEvent& base = bases_[gpu_of(id_at<StepId>(s)) - gpus_.first];
      dates.push_back({between(*base, *starts_[s]), between(*base, *finishes_[s])});
    }
    return dates;
  }

  void keep_values(Replayed& measured) {
    for (const BufferId b : left_at_end(schedule_)) {
      const Buffer& buffer = schedule_[b];
      const Tensor& tensor = graph_[buffer.tensor];
      if (per_micro_batch(tensor.kind)) continue;
      std::vector<std::byte>& value = measured.values[tensor.name];
      value.resize(static_cast<std::size_t>(tensor.bytes.count));
      copy_now(value.data() + buffer.range_offset.count, rooms_->address_of(b), buffer.range_length);
    }
  }

  const Graph& graph_;
  const Platform& platform_;
  const Schedule& schedule_;
  const ReplayPlan& plan_;
  CudaNetwork& cuda_;
  CudaMachine& machine_;
  GpuRange gpus_;
  const ReplayOptions& options_;

  std::vector<std::unique_ptr<std::function<void()>>> host_work_;  // until the streams are done with it
  std::vector<OwnedStream> streams_;                               // by stream
  std::vector<OwnedEvent> starts_, finishes_;                      // by step
  std::vector<OwnedEvent> frees_;                                  // by step that frees in stream order; else empty
  std::vector<OwnedEvent> bases_;                                  // by device
  std::optional<RunRooms> rooms_;                                  // after what its memories wait for
  std::vector<std::pair<std::byte*, Bytes>> inputs_;               // by micro-batch
};

void CudaReplay::begin(StepId s) {
  const Step& step = schedule_[s];
  set_gpu(gpu_of(s));
  // The schedule's own waits come before what is allocated: a pool gives a stream what others freed before that.
  const std::set<StepId> waits(schedule_.waits_of(step).begin(), schedule_.waits_of(step).end());
  for (const StepId earlier : waits) wait_for(s, earlier);
  std::set<StepId> after, makers;
  std::vector<Stain> stains;
  for (const BufferId b : schedule_.buffers_in(step.allocates)) {
    const RunRooms::Opened opened = rooms_->open(b, s);
    after.insert(opened.after.begin(), opened.after.end());
    if (opened.made_for) makers.insert(*opened.made_for);
    stains.push_back({schedule_[b].memory, rooms_->address_of(b), schedule_[b].range_length});
  }
  if (const Bytes workspace = workspace_of(schedule_, plan_, s); workspace > Bytes{0}) {
    const Grant grant = rooms_->open_workspace(s);
    after.insert(grant.after.begin(), grant.after.end());
    stains.push_back({platform_[schedule_[step.stream].device].memory, grant.address, workspace});
  }
  set_gpu(gpu_of(s));
  // A wait that other waits imply costs next to nothing, so none is left out; the stream's own order needs none.
  for (const StepId earlier : after) {
    if (!waits.contains(earlier)) wait_for(s, earlier);
  }
  for (const StepId maker : makers) {
    if (schedule_[maker].stream == step.stream) continue;
    CUDA_CHECK(cudaStreamWaitEvent(stream_of(s), *starts_[maker.index], 0));
  }
  if (options_.poisons) {
    for (const Stain& stain : stains) poison(stain, s);
  }
  CUDA_CHECK(cudaEventRecord(*starts_[s.index], stream_of(s)));
}

/// For the end of another stream's step, with what it freed.
void CudaReplay::wait_for(StepId s, StepId earlier) {
  if (schedule_[earlier].stream == schedule_[s].stream) return;
  const bool with_frees = !frees_.empty() && *frees_[earlier.index] != nullptr;
  CUDA_CHECK(cudaStreamWaitEvent(stream_of(s), with_frees ? *frees_[earlier.index] : finish_of(earlier), 0));
}

void CudaReplay::end(StepId s) {
  set_gpu(gpu_of(s));
  rooms_->close_workspace(s);
  for (const BufferId b : schedule_.buffers_in(schedule_[s].frees)) rooms_->close(b, s);
  if (frees_.empty() || *frees_[s.index] == nullptr) return;
  CUDA_CHECK(cudaEventRecord(*frees_[s.index], stream_of(s)));
}

void CudaReplay::poison(const Stain& stain, StepId s) {
  const auto size = static_cast<std::size_t>(stain.bytes.count);
  if (size == 0) return;
  if (gpu_of(stain.memory)) {
    CUDA_CHECK(cudaMemsetAsync(stain.address, 0xFF, size, stream_of(s)));
  } else {
    on_host(s, [=] { std::memset(stain.address, 0xFF, size); });
  }
}

/// In stream order, on a thread of the driver: no CUDA call, no exception.
void CudaReplay::on_host(StepId s, std::function<void()> work) {
  host_work_.push_back(std::make_unique<std::function<void()>>(std::move(work)));
  const auto run = [](void* function) { (*static_cast<std::function<void()>*>(function))(); };
  CUDA_CHECK(cudaLaunchHostFunc(stream_of(s), run, host_work_.back().get()));
}

void CudaReplay::load(StepId s) {
  for (const PlannedLoad& load : plan_.steps[s.index].loads) {
    const auto& [address, bytes] = inputs_[load.micro_batch];
    CUDA_CHECK(cudaMemcpyAsync(rooms_->address_of(load.region), address, static_cast<std::size_t>(bytes.count),
                               cudaMemcpyDefault, stream_of(s)));
  }
}

KernelArguments CudaReplay::arguments_of(StepId s, const PlannedCall& call) const {
  KernelArguments arguments;
  for (const Address& a : call.inputs) arguments.inputs.push_back(rooms_->address_of(a, s));
  for (const Address& a : call.outputs) arguments.outputs.push_back(rooms_->address_of(a, s));
  arguments.scratch = rooms_->address_of({std::nullopt, call.scratch}, s);
  if (call.statistics)
    arguments.statistics = static_cast<float*>(static_cast<void*>(rooms_->address_of({call.statistics, {}}, s)));
  return arguments;
}

void CudaReplay::compute(StepId s, const PlannedCall& call, const KernelArguments& made) {
  if (schedule_[schedule_[s].stream].way.computes_elsewhere()) {
    return on_host(s, [&kernel = cuda_.host_kernels[call.op.index], made] { kernel(made); });
  }
  set_gpu(gpu_of(s));
  const Gpu& gpu = machine_.gpu(gpu_of(s));
  cuda_.kernels[call.op.index].run(made, {stream_of(s), *gpu.blas, *gpu.dnn});
}

void CudaReplay::add(StepId s, const PlannedCall& call, const KernelArguments& sum, const KernelArguments& made) {
  set_gpu(gpu_of(s));
  const Graph& network = cuda_.network.graph;
  const Op& op = network[call.op];
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    launch::accumulate(sum.out(i), made.out(i), network[op.outputs[i]].bytes.count / 4, stream_of(s));
  }
}

void CudaReplay::copy(StepId s) {
  if (!plan_.steps[s.index].copy) return;
  const PlannedCopy& copy = *plan_.steps[s.index].copy;
  const MemoryId from = plan_.regions[copy.from.index].memory, to = plan_.regions[copy.to.index].memory;
  const std::byte* source = rooms_->address_of(copy.from) + copy.offset.count;
  std::byte* target = rooms_->address_of(copy.to) + copy.offset.count;
  const auto size = static_cast<std::size_t>(copy.bytes.count);
  if (size == 0) return;
  const std::optional<std::size_t> from_gpu = gpu_of(from), to_gpu = gpu_of(to);
  if (from_gpu && to_gpu) {
    CUDA_CHECK(cudaMemcpyPeerAsync(target, static_cast<int>(*to_gpu), source, static_cast<int>(*from_gpu), size,
                                   stream_of(s)));
  } else if (from_gpu || to_gpu) {
    CUDA_CHECK(cudaMemcpyAsync(target, source, size, cudaMemcpyDefault, stream_of(s)));
  } else {
    on_host(s, [=] { std::memcpy(target, source, size); });  // CUDA's own copy would hold the issuing thread
  }
}

/// The runs of all ranks in step, or of one network on all devices: one thread gives each step to all before the next.
class RunsInStep {
 public:
  RunsInStep(const Problem& problem, const Schedule& schedule, const ReplayPlan& plan, RankExchanges* exchanges)
      : graph_(problem.graph), schedule_(schedule), plan_(plan), exchanges_(exchanges) {}

  void add(std::unique_ptr<CudaReplay> run) { runs_.push_back(std::move(run)); }

  std::vector<Replayed> run(const ReplayOptions& options) {
    each([](CudaReplay& run) { run.prepare(); });
    if (exchanges_ != nullptr) exchanges_->begin_run(options.poisons);
    const std::vector<IssueEvent> order = issue_order(schedule_, options.expected);
    for (const IssueEvent event : order) {
      try {
        event.begins ? begin(event.step) : each([&](CudaReplay& run) { run.end(event.step); });
      } catch (const CudaError& error) {
        throw CudaError(fmt::format("{}: {}", text_of(graph_, schedule_, event.step), error.what()));
      }
    }
    std::vector<Replayed> all;
    each([&](CudaReplay& run) { all.push_back(run.measured(order)); });
    return all;
  }

  std::size_t at() const { return at_; }  ///< whose turn it is
  void end() { runs_.clear(); }

 private:
  template <class Work>
  void each(Work work) {
    for (at_ = 0; at_ < runs_.size(); ++at_) work(*runs_[at_]);
    at_ = 0;
  }

  void begin(StepId s) {
    each([&](CudaReplay& run) { run.begin(s); });
    const StepRange range(text_of(graph_, schedule_, s));
    each([&](CudaReplay& run) { run.load(s); });
    for (const PlannedCall& call : plan_.steps[s.index].calls) issue(s, call);
    each([&](CudaReplay& run) {
      run.copy(s);
      run.finish(s);
    });
  }

  void issue(StepId s, const PlannedCall& call) {
    const bool exchanges = exchanges_ != nullptr && exchanges_->exchanges(call.op);
    std::vector<RankCall> brought;
    each([&](CudaReplay& run) {
      const KernelArguments sum = run.arguments_of(s, call);
      const KernelArguments made = call.accumulates ? run.contribution(call, sum) : sum;
      brought.push_back({made, run.stream_of(s)});
      if (exchanges) return;
      run.compute(s, call, made);
      if (call.accumulates) run.add(s, call, sum, made);
    });
    if (!exchanges) return;
    exchanges_->issue(call.op, brought);
    each([&](CudaReplay& run) {
      if (call.accumulates) run.add(s, call, run.arguments_of(s, call), brought[at_].arguments);
    });
  }

  const Graph& graph_;
  const Schedule& schedule_;
  const ReplayPlan& plan_;
  RankExchanges* exchanges_;
  std::vector<std::unique_ptr<CudaReplay>> runs_;
  std::size_t at_ = 0;
};

/// Waits for what has been issued; what went wrong has been said.
void drain(std::size_t gpus) {
  for (std::size_t g = 0; g < gpus; ++g) {
    static_cast<void>(cudaSetDevice(static_cast<int>(g)));
    static_cast<void>(cudaDeviceSynchronize());
    static_cast<void>(cudaGetLastError());
  }
}

std::optional<ReplayFailure> refusal(const Problem& problem, const Schedule& schedule, const ReplayPlan& plan,
                                     const CudaNetwork& cuda, const RankExchanges* exchanges) {
  if (!plan.sums.empty()) return ReplayFailure{"the CUDA backend has no collectives"};
  const auto makes_version = [](const PlannedStep& step) { return !step.versions.empty(); };
  if (std::ranges::any_of(plan.steps, makes_version)) {
    return ReplayFailure{"the CUDA backend updates in place only: it keeps no versions of a parameter"};
  }
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    if (const std::optional<PlannedConversion>& conversion = plan.steps[s].conversion) {
      return ReplayFailure{fmt::format("step {}: the CUDA backend has no kernel for '{}' of '{}'", s,
                                       text_of(conversion->codec), problem.graph[conversion->tensor].name)};
    }
    if (plan.steps[s].addition) {
      return ReplayFailure{fmt::format("step {}: the CUDA backend adds no gradients of several devices", s)};
    }
    const bool on_host = schedule[schedule.steps[s].stream].way.computes_elsewhere();
    for (const PlannedCall& call : plan.steps[s].calls) {
      if (exchanges != nullptr && exchanges->exchanges(call.op)) continue;
      if (on_host ? !!cuda.host_kernels[call.op.index] : !!cuda.kernels[call.op.index].run) continue;
      const Op& op = cuda.network.graph[call.op];
      return ReplayFailure{fmt::format("step {} ('{}'): the CUDA backend has no {}kernel of kind '{}'", s, op.name,
                                       on_host ? "host " : "", op.kind)};
    }
  }
  return std::nullopt;
}

/// On the platform's devices where nothing is exchanged, else one rank on each GPU.
std::variant<std::vector<Replayed>, ReplayFailure> replayed(const Problem& problem, const Schedule& schedule,
                                                            const ReplayPlan& plan, std::span<CudaNetwork> networks,
                                                            RankExchanges* exchanges, CudaMachine& machine,
                                                            Allocation allocation, const ReplayOptions& options) {
  for (const CudaNetwork& network : networks) {
    if (std::optional<ReplayFailure> refused = refusal(problem, schedule, plan, network, exchanges)) return *refused;
  }
  const bool is_one = exchanges == nullptr;
  ReplayFailure failure;
  RunsInStep runs(problem, schedule, plan, exchanges);
  std::size_t made = 0;
  const auto whose = [&] { return is_one ? std::string() : fmt::format("rank {}: ", runs.at() + made); };
  try {
    for (std::uint32_t r = 0; r < networks.size(); ++r, ++made) {
      const GpuRange gpus = is_one ? GpuRange{.first = 0, .count = problem.platform.devices.size()} : GpuRange{r, 1, r};
      runs.add(std::make_unique<CudaReplay>(problem, schedule, plan, networks[r], machine, gpus, allocation, options));
    }
    made = 0;
    try {
      return runs.run(options);
    } catch (...) {
      drain(is_one ? problem.platform.devices.size() : networks.size());  // before the memory that the steps use goes
      throw;
    }
  } catch (const NoRoom& error) {
    failure.what = whose() + error.what;
  } catch (const CudaError& error) {
    failure.what = whose() + error.what();
  }
  runs.end();
  machine.release();
  return failure;
}

}  // namespace

std::variant<Replayed, ReplayFailure> replay_on_cuda(const Problem& problem, const Schedule& schedule,
                                                     const ReplayPlan& plan, CudaNetwork& cuda, CudaMachine& machine,
                                                     Allocation allocation, const ReplayOptions& options) {
  const std::size_t devices = problem.platform.devices.size(), gpus = machine.gpus();
  if (devices > gpus) {
    return ReplayFailure{fmt::format("platform '{}' has {} devices, this machine {} GPU{}", problem.platform.name,
                                     devices, gpus, gpus == 1 ? "" : "s")};
  }
  auto all = replayed(problem, schedule, plan, std::span(&cuda, 1), nullptr, machine, allocation, options);
  if (ReplayFailure* failure = std::get_if<ReplayFailure>(&all)) return std::move(*failure);
  return std::move(std::get<std::vector<Replayed>>(all).front());
}

std::variant<std::vector<Replayed>, ReplayFailure> replay_ranks_on_cuda(
    const Problem& problem, const Schedule& schedule, const ReplayPlan& plan, std::span<CudaNetwork> ranks,
    RankExchanges& exchanges, CudaMachine& machine, Allocation allocation, const ReplayOptions& options) {
  if (std::ranges::any_of(schedule.streams, [](const Stream& stream) { return stream.device != DeviceId{0}; })) {
    return ReplayFailure{"ranks of several devices each: the CUDA backend runs those of one device"};
  }
  return replayed(problem, schedule, plan, ranks, &exchanges, machine, allocation, options);
}

}  // namespace plimsoll
