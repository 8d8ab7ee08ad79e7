#include "validate/cpu/cpu_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "sim/core/expects.h"
#include "sim/core/schedule.h"
#include "validate/cpu/paced_copy.h"
#include "validate/cpu/ranks/rank_sum.h"
#include "validate/cpu/step_work.h"
#include "validate/cpu/stored_outputs.h"
#include "validate/cpu/stream_threads.h"
#include "validate/memory_ledger.h"
#include "validate/networks/initial_values.h"

namespace plimsoll {
namespace {

// What each step of a schedule waits for: its predecessor on its stream, and the steps that it names.

struct StepNeeds {
  std::vector<std::uint32_t> missing;           ///< by step: how many steps it waits for
  std::vector<std::vector<StepId>> dependents;  ///< by step: those that wait for it
  std::vector<StepId> ready;                    ///< those that wait for nothing
};

StepNeeds needs_of(const Schedule& schedule) {
  StepNeeds made{{}, std::vector<std::vector<StepId>>(schedule.steps.size()), {}};
  std::vector<std::optional<StepId>> last(schedule.streams.size());
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    const auto s = id_at<StepId>(i);
    std::vector<StepId> needs(schedule.waits_of(step).begin(), schedule.waits_of(step).end());
    if (last[step.stream.index]) needs.push_back(*last[step.stream.index]);
    std::ranges::sort(needs);
    needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
    made.missing.push_back(static_cast<std::uint32_t>(needs.size()));
    for (const StepId need : needs) made.dependents[need.index].push_back(s);
    if (needs.empty()) made.ready.push_back(s);
    last[step.stream.index] = s;
  }
  return made;
}

using Clock = CopyClock;

/// What a region's bytes are made of while it is live.
struct Room {
  std::byte* address = nullptr;
  std::vector<BufferId> buffers;
};

/// A kernel call with its addresses.
struct ReadyCall {
  const PlannedCall* call = nullptr;
  KernelArguments arguments;
};

/// A step that is about to run: everything that must not be looked up while others run.
struct ReadyStep {
  std::vector<ReadyCall> calls;
  std::byte* from = nullptr;
  std::byte* to = nullptr;  ///< null: a flow of a sum
  std::byte* workspace = nullptr;
  Clock::time_point began;
};

class CpuReplay {
 public:
  CpuReplay(const Problem& problem, const Schedule& schedule, const ReplayPlan& plan, const CpuNetwork& cpu,
            BlockPool& pool, const ReplayOptions& options)
      : graph_(problem.graph),
        platform_(problem.platform),
        schedule_(schedule),
        plan_(plan),
        cpu_(cpu),
        pool_(pool),
        options_(options),
        rooms_(plan.regions.size()),
        needs_(needs_of(schedule)),
        done_(schedule.steps.size(), false),
        steps_of_(schedule.streams.size()),
        streams_(schedule.streams.size()),
        begun_(schedule.streams.size()),
        arrived_(plan.sums.size(), 0) {
    for (const Memory& memory : platform_.memories) ledgers_.emplace_back(memory.capacity);
    const Platform& links = options.links == nullptr ? platform_ : *options.links;
    for (const Endpoints& ends : schedule.routes) paces_.push_back(pace_of(links, ends));
    measured_.timeline.steps.resize(schedule.steps.size());
    for (std::uint32_t s = 0; s < schedule.steps.size(); ++s) {
      if (!is_instant(StepId{s})) steps_of_[schedule.steps[s].stream.index].push_back(StepId{s});
    }
  }

  ~CpuReplay() {
    for (std::size_t r = 0; r < rooms_.size(); ++r) {
      if (rooms_[r].address != nullptr) leave(id_at<RegionId>(r));
    }
    for (std::size_t m = 0; m < blocks_.size(); ++m) {
      if (blocks_[m] != nullptr) pool_.give_back(blocks_[m], *plan_.blocks[m]);
    }
  }
  CpuReplay(const CpuReplay&) = delete;
  CpuReplay& operator=(const CpuReplay&) = delete;

  std::variant<Replayed, ReplayFailure> run() {
    const Network& first = first_of(cpu_.network);  // inputs are there beforehand, so that loading is one copy
    inputs_ = inputs_of(cpu_.network, options_.batch == nullptr ? input_values(first, schedule_.micro_batches)
                                                                : options_.batch->inputs);
    if (has_labels()) measured_.scores.resize(schedule_.micro_batches);
    if (!take_blocks() || !make_resident()) return ReplayFailure{*failure_};
    {
      std::unique_lock lock(mutex_);
      std::vector<std::jthread> threads;
      for (std::size_t s = 0; s < steps_of_.size(); ++s) {
        threads.emplace_back([this, s] { work(id_at<StreamId>(s)); });
      }
      all_waiting_.wait(lock, [&] { return waiting_ == steps_of_.size(); });
      began_ = Clock::now();
      running_ = true;
      begin_ready(needs_.ready);
      streams_.wake_all();
      lock.unlock();
    }  // joins
    if (failure_) return ReplayFailure{*failure_};
    for (const MemoryLedger& ledger : ledgers_) measured_.timeline.peaks.push_back(ledger.peak());
    for (std::size_t m = 0; m < plan_.blocks.size(); ++m) {
      measured_.allocators.emplace_back();
      if (plan_.blocks[m]) measured_.allocators.back() = AllocatorPeaks{*plan_.blocks[m], ledgers_[m].peak().bytes};
    }
    for (const Interval& ran : measured_.timeline.steps) {
      measured_.timeline.makespan = std::max(measured_.timeline.makespan, ran.finish);
    }
    if (options_.keeps_values) keep_values();
    return std::move(measured_);
  }

 private:
  // --- before: data, what is resident

  bool is_instant(StepId s) const {
    const PlannedStep& step = plan_.steps[s.index];
    return step.calls.empty() && !step.copy && !step.conversion && !step.addition;
  }

  bool take_blocks() {
    for (std::size_t m = 0; m < plan_.blocks.size(); ++m) {
      blocks_.push_back(nullptr);
      const std::optional<Bytes>& block = plan_.blocks[m];
      if (!block) continue;
      const Memory& memory = platform_.memories[m];
      if (memory.capacity && *block > *memory.capacity) {
        fail(fmt::format("out of memory in '{}': its block of planned addresses needs {} B of {} B", memory.name,
                         block->count, memory.capacity->count));
        return false;
      }
      blocks_.back() = pool_.take(*block);
      poison(blocks_.back(), *block);
    }
    return true;
  }

  bool make_resident() {
    std::map<std::string, const Tensor*> known;  // the network's tensors have shapes, by which numbers are scaled
    for (const Tensor& tensor : cpu_.network.graph.tensors) known[tensor.name] = &tensor;
    for (const BufferId b : schedule_.resident) {
      if (!has_room(schedule_[b].memory, schedule_[b].bytes, "before the first step", b)) return false;
      ledgers_[schedule_[b].memory.index].take(schedule_[b].bytes, std::nullopt);
      open(b);
      const std::vector<std::byte> value = value_before(*known.at(graph_[schedule_[b].tensor].name));
      const Buffer& buffer = schedule_[b];
      std::copy_n(value.begin() + buffer.range_offset.count, buffer.range_length.count, address_of(b));
    }
    return true;
  }

  std::vector<std::byte> value_before(const Tensor& tensor) const {
    if (options_.start != nullptr && tensor.kind != TensorKind::parameter_gradient) {
      const auto found = options_.start->find(tensor.name);
      if (found != options_.start->end()) return found->second;
    }
    return initial_value(tensor);
  }

  bool has_labels() const { return options_.batch != nullptr && !options_.batch->labels.empty(); }

  // --- memory, always under the lock while threads run

  bool has_room(MemoryId memory, Bytes bytes, const std::string& when, std::optional<BufferId> b) {
    MemoryLedger& ledger = ledgers_[memory.index];
    if (ledger.has_room_for(bytes)) return true;
    const std::string what =
        b ? fmt::format("buffer {} ('{}')", b->index, graph_[schedule_[*b].tensor].name) : std::string("its workspace");
    fail(fmt::format("out of memory in '{}': {}: {} needs {} B, {} B are free", platform_[memory].name, when, what,
                     bytes.count, ledger.free().count));
    return false;
  }

  Room& room_of(BufferId b) { return rooms_[plan_.region_of[b.index].index]; }

  /// In its block, or apart.
  std::byte* entered(RegionId r) {
    const Region& region = plan_.regions[r.index];
    return region.at ? blocks_[region.memory.index] + region.at->count : pool_.take(region.bytes);
  }
  void leave(RegionId r) {
    std::byte* address = std::exchange(rooms_[r.index].address, nullptr);
    if (!plan_.regions[r.index].at) pool_.give_back(address, plan_.regions[r.index].bytes);
  }

  std::byte* take_workspace(StepId s) {
    const std::optional<Bytes>& at = plan_.steps[s.index].workspace_at;
    return at ? blocks_[own_memory(s).index] + at->count : pool_.take(workspace_of(s));
  }
  void leave_workspace(StepId s, std::byte* workspace) {
    if (plan_.steps[s.index].workspace_at) {
      poison(workspace, workspace_of(s));
    } else {
      pool_.give_back(workspace, workspace_of(s));
    }
  }

  std::byte* address_of(BufferId b) { return room_of(b).address + schedule_[b].range_offset.count; }

  void open(BufferId b) {
    Room& room = room_of(b);
    if (room.buffers.empty()) room.address = entered(plan_.region_of[b.index]);
    if (!has_others(room, b)) poison(address_of(b), schedule_[b].bytes);
    room.buffers.push_back(b);
  }

  void close(BufferId b) {
    if (options_.keeps_gradients && graph_[schedule_[b].tensor].kind == TensorKind::parameter_gradient) keep(b);
    Room& room = room_of(b);
    std::erase(room.buffers, b);
    if (!has_others(room, b)) poison(address_of(b), schedule_[b].bytes);
    if (room.buffers.empty()) leave(plan_.region_of[b.index]);
  }

  /// Whether bytes of the buffer are another's too: a chunk may come back while what it was copied from is still being
  /// sent elsewhere. The same bytes are in both.
  bool has_others(const Room& room, BufferId b) const {
    const Buffer& own = schedule_[b];
    return std::ranges::any_of(room.buffers, [&](BufferId other) {
      const Buffer& each = schedule_[other];
      return each.range_offset < own.range_offset + own.range_length &&
             own.range_offset < each.range_offset + each.range_length;
    });
  }

  void poison(std::byte* address, Bytes bytes) const {
    if (options_.poisons && bytes > Bytes{0}) std::memset(address, 0xFF, static_cast<std::size_t>(bytes.count));
  }

  void fail(const std::string& why) {
    if (!failure_) failure_ = why;
    streams_.wake_all();
    if (cpu_.give_up) cpu_.give_up();
  }

  MemoryId own_memory(StepId s) const { return platform_[schedule_[schedule_[s].stream].device].memory; }

  Bytes workspace_of(StepId s) const { return std::max(schedule_[s].workspace, plan_.steps[s.index].workspace); }

  // --- the life of a step

  /// Every event has a date and a round of its own, in the order in which the lock saw them.
  std::pair<Seconds, std::uint32_t> now() {
    const Seconds date{std::chrono::duration<double>(Clock::now() - began_).count()};
    round_ = date == last_date_ ? round_ + 1 : 0;
    last_date_ = date;
    return {date, round_};
  }

  std::string text(StepId s) const {
    const OpId op = schedule_[s].op;
    return fmt::format("step {}{}", s.index, op == no_op ? "" : " ('" + graph_[op].name + "')");
  }

  bool start(StepId s, ReadyStep& ready) {
    const Step& step = schedule_[s];
    Interval& ran = measured_.timeline.steps[s.index];
    std::tie(ran.start, ran.start_round) = now();
    const MemoryId own = own_memory(s);
    std::vector<Bytes> sums(ledgers_.size());
    sums[own.index] += step.workspace;
    if (!has_room(own, step.workspace, text(s), std::nullopt)) return false;
    for (const BufferId b : schedule_.buffers_in(step.allocates)) {
      Bytes& sum = sums[schedule_[b].memory.index];
      sum += schedule_[b].bytes;
      if (!has_room(schedule_[b].memory, sum, text(s), b)) return false;
    }
    for (std::size_t m = 0; m < sums.size(); ++m) ledgers_[m].take(sums[m], s);
    try {
      for (const BufferId b : schedule_.buffers_in(step.allocates)) open(b);
      if (workspace_of(s) > Bytes{0}) ready.workspace = take_workspace(s);
    } catch (const std::bad_alloc&) {
      fail(fmt::format("out of memory: {}: the machine gives no more", text(s)));
      return false;
    }
    poison(ready.workspace, workspace_of(s));
    ready.began = began_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(ran.start.value));
    resolve(s, ready);
    return true;
  }

  void* address_of(const Address& address, const ReadyStep& ready) {
    std::byte* base = address.region ? rooms_[address.region->index].address : ready.workspace;
    return base == nullptr ? nullptr : base + address.offset.count;
  }

  void resolve(StepId s, ReadyStep& ready) {
    const PlannedStep& planned = plan_.steps[s.index];
    for (const PlannedCall& call : planned.calls) {
      ReadyCall made{&call, {}};
      for (const Address& a : call.inputs) made.arguments.inputs.push_back(address_of(a, ready));
      for (const Address& a : call.outputs) made.arguments.outputs.push_back(address_of(a, ready));
      made.arguments.scratch = address_of({std::nullopt, call.scratch}, ready);
      made.arguments.update = options_.update;
      if (has_labels()) made.arguments.labels = options_.batch->labels[schedule_[s].micro_batch].data();
      if (call.statistics) made.arguments.statistics = static_cast<float*>(address_of({call.statistics, {}}, ready));
      ready.calls.push_back(std::move(made));
    }
    if (const std::optional<PlannedConversion>& conversion = planned.conversion) {
      ready.from = rooms_[conversion->from.index].address;
      ready.to = rooms_[conversion->to.index].address;
    }
    if (const std::optional<PlannedAddition>& addition = planned.addition) {
      ready.from = rooms_[addition->from.index].address + addition->offset.count;
      ready.to = rooms_[addition->to.index].address + addition->offset.count;
    }
    if (!planned.copy) return;
    ready.from = rooms_[planned.copy->from.index].address + planned.copy->offset.count;
    if (planned.copy->sum) return;
    ready.to = rooms_[planned.copy->to.index].address + planned.copy->offset.count;
  }

  void finish(StepId s, std::byte* workspace) {
    const Step& step = schedule_[s];
    Interval& ran = measured_.timeline.steps[s.index];
    std::tie(ran.finish, ran.finish_round) = now();
    if (workspace != nullptr) leave_workspace(s, workspace);
    ledgers_[own_memory(s).index].give_back(step.workspace);
    for (const BufferId b : schedule_.buffers_in(step.frees)) {
      close(b);
      ledgers_[schedule_[b].memory.index].give_back(schedule_[b].bytes);
    }
    done_[s.index] = true;
  }

  /// What is ready begins where it becomes ready, without a thread's waking up: steps that only free run, and copies
  /// start, as a link does that no thread drives. Kernels start in their stream's thread.
  void begin_ready(std::vector<StepId> ready) {
    std::vector<StepId> copies;
    while (!ready.empty()) {
      const StepId s = ready.back();
      ready.pop_back();
      if (is_instant(s)) {
        ReadyStep nothing;
        if (!start(s, nothing)) return;
        finish(s, nothing.workspace);
        release(s, ready);
      } else if (plan_.steps[s.index].copy) {
        copies.push_back(s);
      } else {
        streams_.wake(schedule_[s].stream);
      }
    }
    for (const StepId s : copies) {
      const StreamId stream = schedule_[s].stream;
      if (!start(s, begun_[stream.index].emplace())) return;
      streams_.wake(stream);
    }
  }

  void release(StepId s, std::vector<StepId>& ready) {
    for (const StepId next : needs_.dependents[s.index]) {
      if (--needs_.missing[next.index] == 0) ready.push_back(next);
    }
  }

  /// A copy is about to be there: threads that wait for nothing else had better be awake.
  void announce(StepId copy, Clock::time_point due) {
    for (const StepId next : needs_.dependents[copy.index]) {
      if (needs_.missing[next.index] != 1) continue;
      if (is_instant(next)) {
        announce(next, due);
      } else {
        streams_.keep_awake(schedule_[next].stream, due + waking);
      }
    }
  }

  // --- threads

  void work(StreamId stream) {
    use_one_thread();
    sleep_precisely();
    std::unique_lock lock(mutex_);
    if (++waiting_ == steps_of_.size()) all_waiting_.notify_one();
    for (const StepId s : steps_of_[stream.index]) {
      const bool copies = plan_.steps[s.index].copy.has_value();
      streams_.wait(lock, stream, [&] {
        return failure_ || (running_ && (copies ? begun_[stream.index].has_value() : needs_.missing[s.index] == 0));
      });
      if (failure_) return;
      ReadyStep ready;
      if (copies) {
        ready = std::move(*std::exchange(begun_[stream.index], std::nullopt));
      } else if (!start(s, ready)) {
        return;
      }
      lock.unlock();
      const std::string trouble = execute_or_say_why(s, ready);
      lock.lock();
      if (!trouble.empty()) fail(fmt::format("{}: {}", text(s), trouble));
      finish(s, ready.workspace);
      std::vector<StepId> released;
      release(s, released);
      begin_ready(std::move(released));
    }
  }

  /// A thread is a border: what a kernel's library throws ends there.
  std::string execute_or_say_why(StepId s, const ReadyStep& ready) {
    try {
      execute(s, ready);
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  void execute(StepId s, const ReadyStep& ready) {
    const PlannedStep& planned = plan_.steps[s.index];
    for (const PlannedLoad& load : planned.loads) {
      std::ranges::copy(inputs_[load.micro_batch], rooms_[load.region.index].address);
    }
    for (const auto& [from, to] : planned.versions) {
      std::copy_n(rooms_[from.index].address, plan_.regions[to.index].bytes.count, rooms_[to.index].address);
    }
    for (const ReadyCall& call : ready.calls) {
      run_call(cpu_, *call.call, call.arguments);
      if (!has_labels()) continue;
      if (const auto score = score_of(cpu_, *call.call, call.arguments)) {
        measured_.scores[schedule_[s].micro_batch] = *score;
      }
    }
    if (planned.conversion) {
      convert(graph_, *planned.conversion, options_.chance, ready.from, ready.to, ready.workspace);
    }
    if (planned.addition) add_numbers(ready.to, ready.from, planned.addition->bytes);
    if (!planned.copy) return;
    if (planned.copy->sum) {
      carry(s, *planned.copy, ready);
    } else {
      copy(s, ready, planned.copy->bytes, latency_of(s));
    }
  }

  /// A flow of a sum moves its bytes to a place of its own, at the pace of its link.
  void carry(StepId s, const PlannedCopy& flow, const ReadyStep& ready) {
    const PlannedSum& sum = plan_.sums[*flow.sum];
    std::vector<std::byte> brought(static_cast<std::size_t>(flow.bytes.count));
    ReadyStep part = ready;
    part.to = brought.data();
    Seconds latency = latency_of(s);
    for (Bytes left = schedule_[s].work.bytes; left > Bytes{0}; left -= std::min(left, flow.bytes)) {
      copy(s, part, std::min(left, flow.bytes), latency);
      part.began = Clock::now();
      latency = {};
    }
    {
      const std::lock_guard lock(mutex_);
      if (++arrived_[*flow.sum] < sum.flows) return;
    }
    for (const PlannedSum::Value& value : sum.values) {
      std::vector<std::byte*> ranks;
      for (const RegionId rank : value.ranks) ranks.push_back(rooms_[rank.index].address + value.offset.count);
      sum_ranks(ranks, value.bytes);
    }
  }

  Seconds latency_of(StepId s) const {
    return paces_[schedule_[s].work.route.index].latency + schedule_[s].work.seconds;
  }

  void copy(StepId s, const ReadyStep& ready, Bytes bytes, Seconds latency) {
    LinkPace pace;
    if (options_.pace == Pace::links) {
      pace = paces_[schedule_[s].work.route.index];
      pace.latency = latency;
    }
    paced_copy(ready.to, ready.from, bytes, pace, ready.began, [&](Clock::time_point due) {
      const std::lock_guard lock(mutex_);
      announce(s, due);
    });
  }

  // --- after

  void keep_values() {
    for (const BufferId b : left_at_end(schedule_)) {
      if (!per_micro_batch(graph_[schedule_[b].tensor].kind)) keep(b);
    }
  }

  void keep(BufferId b) {
    const Buffer& buffer = schedule_[b];
    const Tensor& tensor = graph_[buffer.tensor];
    std::vector<std::byte>& value = measured_.values[tensor.name];
    value.resize(static_cast<std::size_t>(tensor.bytes.count));
    std::copy_n(address_of(b), buffer.range_length.count, value.begin() + buffer.range_offset.count);
  }

  const Graph& graph_;
  const Platform& platform_;
  const Schedule& schedule_;
  const ReplayPlan& plan_;
  const CpuNetwork& cpu_;
  BlockPool& pool_;
  const ReplayOptions options_;
  std::vector<std::vector<std::byte>> inputs_;  // by micro-batch
  std::vector<LinkPace> paces_;                 // by route

  std::mutex mutex_;  // guards all below while threads run
  std::vector<MemoryLedger> ledgers_;
  std::vector<std::byte*> blocks_;  // by memory; null: its rooms come one by one
  std::vector<Room> rooms_;         // by region
  StepNeeds needs_;
  std::vector<bool> done_;                     // by step
  std::vector<std::vector<StepId>> steps_of_;  // by stream: those that its thread runs
  StreamThreads streams_;
  std::vector<std::optional<ReadyStep>> begun_;  // by stream: the copy that its thread is to make
  std::vector<std::uint32_t> arrived_;           // by collective: flows
  std::condition_variable all_waiting_;
  std::size_t waiting_ = 0;
  bool running_ = false;
  std::optional<std::string> failure_;
  Clock::time_point began_;
  Seconds last_date_{-1};
  std::uint32_t round_ = 0;
  Replayed measured_;
};

}  // namespace

std::variant<Replayed, ReplayFailure> replay_on_cpu(const Problem& problem, const Schedule& schedule,
                                                    const ReplayPlan& plan, const CpuNetwork& cpu, BlockPool& pool,
                                                    const ReplayOptions& options) {
  if (std::optional<ReplayFailure> lacking = lacks_kernel(problem, plan, cpu)) return *lacking;
  return CpuReplay(problem, schedule, plan, cpu, pool, options).run();
}

}  // namespace plimsoll
