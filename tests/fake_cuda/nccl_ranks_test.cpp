// Ranks on several made-up GPUs that exchange by a made-up NCCL: they train what the CPU's ranks train. Streams run in
// random order as far as they may, so that a wait that is missing spoils the training.

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <set>

#include "sim/bound/guaranteed_peak.h"
#include "sim/core/collective_op.h"
#include "sim/engine/event/event_engine.h"
#include "strategies/compose/spec.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/training/training.h"
#include "validate/cpu/kernels/rank_kernels.h"
#include "validate/cpu/ranks/rank_exchange.h"
#include "validate/cpu/ranks/rank_replay.h"
#include "validate/cuda/cuda_replay.h"
#include "validate/cuda/ranks/cuda_ranks.h"
#include "validate/cuda/ranks/group_exchange.h"
#include "validate/cuda/ranks/nccl_exchange.h"
#include "validate/cuda/ranks/nccl_rates.h"
#include "validate/networks/networks.h"
#include "validate/ranks/rank_ops.h"
#include "validate/ranks/ranks_together.h"

namespace plimsoll {
namespace {

const std::string gpu_mlp = "mlp:layers=4,width=16,batch=8,classes=8,view=graph,updates=adam";
const std::string gpu_gpt =
    "gpt:layers=2,width=16,heads=4,sequence=8,batch=4,vocabulary=20,view=graph,updates=momentum";

/// A plan of a network for ranks on so many GPUs.
struct RankedPlan {
  std::string network;
  Problem problem;
  Plan plan;
};

RankedPlan ranked_plan(const std::string& network, std::string_view spec, std::uint32_t count) {
  constexpr BytesPerSecond fast{20e9};
  const Problem whole = problem_of(network_model(network), gpus({.count = count, .to_host = fast, .to_peers = fast}),
                                   {.micro_batches = 4});
  const std::vector<Pass> passes = parse_spec(spec, "test");
  Problem problem = transformed(whole, passes);
  PlanOutcome outcome = plan(problem, passes, std::nullopt);
  REQUIRE(std::holds_alternative<Plan>(outcome));
  return {network, std::move(problem), std::get<Plan>(std::move(outcome))};
}

Replayed on_cpu_ranks(const RankedPlan& of) {
  BlockPool pool;
  auto made = network_on_ranks(named_network(of.network).network, of.problem, pool);
  if (const auto* failure = std::get_if<ReplayFailure>(&made)) FAIL(failure->what);
  auto outcome = replay(of.problem, of.plan.schedule, *std::get<std::unique_ptr<RunnableNetwork>>(made),
                        {.poisons = true, .keeps_values = true});
  if (const auto* failure = std::get_if<ReplayFailure>(&outcome)) FAIL(failure->what);
  return std::get<Replayed>(std::move(outcome));
}

/// The CPU's kernels of each rank, issued to streams; exchanges are NCCL's.
class RanksOnStreams {
 public:
  RanksOnStreams(const RankedPlan& of, CudaMachine& machine)
      : of_(of),
        machine_(machine),
        whole_(named_network(of.network).network),
        cpu_(cpu_ranks()),
        together_(whole_, graph(), cpu_.layouts, *of.problem.mesh),
        exchange_(graph(), cpu_.layouts, *of.problem.mesh, machine) {
    for (std::uint32_t rank = 0; rank < cpu_.ranks.size(); ++rank) {
      CudaNetwork& made = ranks_.emplace_back();
      made.network = cpu_.ranks[rank].network;
      for (const Kernel& kernel : cpu_.ranks[rank].kernels) {
        made.kernels.push_back({[&kernel](const KernelArguments& arguments, const Queue& queue) {
                                  fake::launch(queue.stream, [&kernel, arguments] { kernel.run(arguments); });
                                },
                                kernel.scratch});
        made.host_kernels.push_back(kernel.run);
      }
      RankStart start = together_.start_of(rank, of.plan.schedule.micro_batches, {});
      made.inputs = std::move(start.batch.inputs);
      made.initial_values = std::move(start.values);
    }
  }

  /// Put together, and each rank's own.
  std::pair<Replayed, std::vector<Replayed>> run(Allocation allocation, const ReplayOptions& options) {
    const auto plan = replay_plan(of_.problem, of_.plan.schedule, ranks_.front().network);
    if (const auto* failure = std::get_if<ReplayFailure>(&plan)) FAIL(failure->what);
    auto all = replay_ranks_on_cuda(of_.problem, of_.plan.schedule, std::get<ReplayPlan>(plan), ranks_, exchange_,
                                    machine_, allocation, options);
    if (const auto* failure = std::get_if<ReplayFailure>(&all)) FAIL(failure->what);
    std::vector<RanksTogether::Outcome> outcomes;
    for (const Replayed& each : std::get<std::vector<Replayed>>(all)) outcomes.emplace_back(each);
    auto made = together_.put_together(outcomes);
    if (const auto* failure = std::get_if<ReplayFailure>(&made)) FAIL(failure->what);
    return {std::get<Replayed>(std::move(made)), std::get<std::vector<Replayed>>(std::move(all))};
  }

 private:
  RankNetworks cpu_ranks() const {
    auto made = rank_networks(whole_, of_.problem);
    if (const auto* failure = std::get_if<ReplayFailure>(&made)) FAIL(failure->what);
    return std::get<RankNetworks>(std::move(made));
  }
  const Graph& graph() const { return cpu_.ranks.front().network.graph; }

  const RankedPlan& of_;
  CudaMachine& machine_;
  Network whole_;
  RankNetworks cpu_;
  RanksTogether together_;
  NcclExchange exchange_;
  std::vector<CudaNetwork> ranks_;
};

void check_alike(const Replayed& made, const Replayed& expected, bool has_same_sums) {
  CHECK(made.values.size() == expected.values.size());
  CHECK(made.values.size() > 10);
  if (has_same_sums) CHECK(differing(made, expected).empty());
  for (const auto& [name, value] : expected.values) {
    INFO(name);
    CHECK(relative_difference(made, expected, name) < 2e-5);
  }
}

/// The promised one where all its steps follow each other; else one of those that timing allows.
void check_peaks(const std::vector<Replayed>& by_rank, const RankedPlan& of) {
  const MemoryId own = of.problem.platform.devices.front().memory;
  for (const Replayed& rank : by_rank) {
    const Bytes measured = rank.timeline.peaks[own.index].bytes;
    CHECK(measured <= guaranteed_peak(of.plan.schedule, of.problem.platform, own));
    if (of.plan.schedule.streams.size() == 1) CHECK(measured == of.plan.peak);
  }
}

TEST_CASE("ranks on GPUs train what the CPU's ranks train, in the promised memory each", "[fake_cuda][eleventh-3]") {
  const std::string network = GENERATE(gpu_mlp, gpu_gpt);
  const std::uint32_t count = GENERATE(2U, 4U);
  const char* spec = GENERATE("data_parallel", "zero1", "zero2", "zero3", "zero3(reshard_after_forward=2)", "megatron",
                              "megatron(sequence=yes)", "megatron(tensor=2)|zero3", "context(way=all_to_all)",
                              "zero1|greedy_recompute");
  const auto has = [&](const char* text) { return std::string_view(spec).find(text) != std::string_view::npos; };
  if (network == gpu_mlp && has("context")) return;
  if (count == 2 && has("tensor=2")) return;
  INFO(network << ", " << spec << " on " << count);
  const RankedPlan of = ranked_plan(network, spec, count);
  const Replayed expected = on_cpu_ranks(of);
  for (const Allocation allocation : {Allocation::caching, Allocation::stream_ordered}) {
    for (const RandomCase seed : random_cases(1, 2)) {
      INFO("seed " << seed);
      fake::begin({.seed = seed, .gpus = static_cast<int>(count), .haste = seed});
      CudaMachine machine;
      RanksOnStreams ranks(of, machine);
      ReplayOptions options{.poisons = true, .keeps_values = true};
      if (seed % 2 == 1) options.expected = simulate_event(of.plan.schedule, of.problem.platform);
      for (int repetition = 0; repetition < (seed == 1 ? 2 : 1); ++repetition) {  // then in memory that was used
        const auto [together, by_rank] = ranks.run(allocation, options);
        check_alike(together, expected, count == 2);  // of two summands the order is nothing
        check_peaks(by_rank, of);
      }
      CHECK(fake::early_uses() == 0);
      CHECK(fake::strays() == 0);
    }
  }
}

std::variant<std::unique_ptr<RunnableNetwork>, ReplayFailure> prepared(const RankedPlan& of, CudaMachine& machine) {
  return network_on_gpus(named_network(of.network).network, of.problem, machine, {});
}

void check_kernels(const std::string& network, const char* spec, std::uint32_t count) {
  INFO(network << ", " << spec << " on " << count);
  const RankedPlan of = ranked_plan(network, spec, count);
  fake::begin({.gpus = static_cast<int>(count), .haste = 1});  // all at last, in any order that waits allow
  CudaMachine machine;
  auto made = prepared(of, machine);
  if (const auto* failure = std::get_if<ReplayFailure>(&made)) FAIL(failure->what);
  const auto outcome = replay(of.problem, of.plan.schedule, *std::get<std::unique_ptr<RunnableNetwork>>(made),
                              {.poisons = true, .keeps_values = true});
  if (const auto* failure = std::get_if<ReplayFailure>(&outcome)) FAIL(failure->what);
  const Replayed &here = std::get<Replayed>(outcome), there = on_cpu_ranks(of);
  REQUIRE(here.values.size() == there.values.size());
  for (const auto& [name, value] : there.values) {
    INFO(name);
    CHECK(relative_difference(here, there, name) < 2e-5);
  }
  CHECK(fake::strays() == 0);
}

TEST_CASE("a GPU's kernels on ranks' shares train what the CPU's do", "[fake_cuda]") {
  const std::string tiny = "mlp:layers=2,width=4,batch=2,classes=2,view=graph,updates=momentum";
  check_kernels(tiny, "megatron", 2);
  check_kernels(tiny, "hsm2dl", 2);  // shares out rows, too
  check_kernels(tiny, "zero2", 2);
}

TEST_CASE("a GPU's kernels on ranks' shares of larger networks train what the CPU's do", "[fake_cuda][turn-3]") {
  check_kernels(gpu_mlp, "megatron(tensor=2)|zero3", 4);
  check_kernels(gpu_mlp, "hsm2dl", 4);
  check_kernels("gpt:layers=1,width=8,heads=2,sequence=4,batch=2,vocabulary=8,view=graph,updates=momentum",
                "megatron(sequence=yes)", 2);
}

std::vector<std::byte> random_bytes(std::int64_t count, Random& random) {
  std::vector<std::byte> made(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i + 4 <= made.size(); i += 4) {
    const auto number = static_cast<float>(random.below(1000));  // sums of whole numbers have no order
    std::memcpy(made.data() + i, &number, 4);
  }
  return made;
}

/// Values of tensors of ranks on made-up GPUs.
class DeviceBytes {
 public:
  DeviceBytes(std::uint32_t gpu, const std::vector<std::byte>& value) : size_(value.size()) {
    set_gpu(gpu);
    CUDA_CHECK(cudaMalloc(&address_, size_ + 1));
    std::ranges::copy(value, static_cast<std::byte*>(address_));
  }
  ~DeviceBytes() { static_cast<void>(cudaFree(address_)); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  void* address() const { return address_; }
  std::vector<std::byte> back() const {
    const auto* first = static_cast<const std::byte*>(address_);
    return {first, first + size_};
  }

 private:
  void* address_ = nullptr;
  std::size_t size_;
};

TEST_CASE("each exchange of a plan gives every rank the bytes that the CPU's gives", "[fake_cuda]") {
  std::set<GroupExchange::Call> calls;
  std::size_t staged = 0, direct = 0;
  for (const auto& [network, spec] :
       {std::pair{gpu_gpt, "megatron(sequence=yes)"}, std::pair{gpu_gpt, "zero3(reshard_after_forward=2)"},
        std::pair{gpu_gpt, "context(way=all_to_all)"}, std::pair{gpu_mlp, "zero2"}, std::pair{gpu_mlp, "hsm2dl"},
        std::pair{gpu_mlp, "megatron(tensor=2)|zero3"}, std::pair{gpu_gpt, "data_parallel(buckets=off)"}}) {
    const RankedPlan of = ranked_plan(network, spec, 4);
    const auto made = rank_ops(named_network(network).network, of.problem);
    const RankOps& ops = std::get<RankOps>(made);
    const Graph& graph = ops.network().graph;
    fake::begin({.gpus = 4});
    CudaMachine machine;
    NcclExchange exchange_on_gpus(graph, ops.layouts(), ops.mesh(), machine);
    exchange_on_gpus.begin_run(true);
    Random random(7);
    for (std::uint32_t o = 0; o < graph.ops.size(); ++o) {
      const Op& op = graph.ops[o];
      CHECK(exchange_on_gpus.exchanges(OpId{o}) == exchanges(op));
      if (!exchanges(op)) continue;
      INFO(network << ", " << spec << ": " << op.name);
      const std::vector<ValueExchange> values = value_exchanges(graph, op, ops.layouts(), ops.mesh());
      std::vector<std::unique_ptr<DeviceBytes>> inputs, outputs;
      std::vector<std::vector<std::byte>> from, to;  // by value, then rank
      std::vector<OwnedStream> streams;
      std::vector<RankCall> brought(4);
      for (std::size_t k = 0; k < values.size(); ++k) {
        const bool in_place = op.outputs.empty();
        for (std::uint32_t rank = 0; rank < 4; ++rank) {
          from.push_back(random_bytes(graph[op.inputs[k]].bytes.count, random));
          to.push_back(in_place ? from.back()
                                : std::vector<std::byte>(static_cast<std::size_t>(graph[op.outputs[k]].bytes.count)));
          inputs.push_back(std::make_unique<DeviceBytes>(rank, from.back()));
          brought[rank].arguments.inputs.push_back(inputs.back()->address());
          if (in_place) continue;
          outputs.push_back(std::make_unique<DeviceBytes>(rank, to.back()));
          brought[rank].arguments.outputs.push_back(outputs.back()->address());
        }
        for (std::uint32_t first = 0; first < 4; ++first) {
          const std::vector<std::uint32_t> group = exchanging_group(op, ops.mesh(), first);
          if (group.front() != first) continue;
          std::vector<const std::byte*> sent;
          std::vector<std::byte*> received;
          for (const std::uint32_t rank : group) {
            sent.push_back(from[4 * k + rank].data());
            received.push_back(to[4 * k + rank].data());
          }
          const auto givers = from;  // in place what was received is not sent on
          for (std::size_t g = 0; g < group.size(); ++g) sent[g] = givers[4 * k + group[g]].data();
          exchange(values[k], group, sent, received);
          const GroupExchange planned = group_exchange(values[k], group, in_place);
          calls.insert(planned.call);
          for (const RankCarries& carries : planned.ranks)
            ++(carries.packs.empty() && carries.unpacks.empty() ? direct : staged);
        }
      }
      for (std::uint32_t rank = 0; rank < 4; ++rank) {
        set_gpu(rank);
        streams.push_back(new_stream());
        brought[rank].stream = *streams.back();
      }
      exchange_on_gpus.issue(OpId{o}, brought);
      CUDA_CHECK(cudaDeviceSynchronize());
      for (std::size_t k = 0; k < values.size(); ++k) {
        for (std::uint32_t rank = 0; rank < 4; ++rank) {
          const DeviceBytes& made_here = *(op.outputs.empty() ? inputs : outputs)[4 * k + rank];
          const std::vector<std::byte> here = made_here.back();
          for (const RankPiece& piece : values[k].to[rank]) {  // what is beyond them is nobody's
            CHECK(std::memcmp(here.data() + piece.own, to[4 * k + rank].data() + piece.own,
                              static_cast<std::size_t>(piece.bytes)) == 0);
          }
        }
      }
    }
  }
  CHECK(calls.size() == 5);
  CHECK(direct > 100);
  CHECK(staged > 100);
}

TEST_CASE("ranks that GPUs cannot run say why", "[fake_cuda]") {
  const auto why = [](const std::string& network, const char* spec, const fake::Machine& on) {
    const RankedPlan of = ranked_plan(network, spec, 2);
    fake::begin(on);
    CudaMachine machine;
    const auto made = prepared(of, machine);
    const auto* failure = std::get_if<ReplayFailure>(&made);
    return failure == nullptr ? std::string() : failure->what;
  };
  CHECK(why(gpu_mlp, "zero1", {}) == "the plan has 2 ranks, this machine 1 GPU");
  CHECK(why(gpu_mlp, "zero1", {.gpus = 3}).empty());  // ranks are the first of them
  CHECK(why(gpu_gpt, "megatron(sequence=yes,asynchronous=yes)", {.gpus = 2})
            .ends_with("reads or makes blocks of other ranks, which the CUDA backend does not run; the CPU's does "
                       "(--backend cpu)"));
  CHECK_THROWS_WITH(why(gpu_mlp, "zero1", {.gpus = 2, .has_nccl = false}),
                    Catch::Contains("no library for the CUDA backend: libnccl"));
}

TEST_CASE("out of memory on one rank is named with it, and all device memory is back", "[fake_cuda]") {
  const RankedPlan of = ranked_plan("mlp:layers=6,width=256,batch=4096,classes=4,view=graph,updates=sgd", "zero1", 2);
  fake::begin({.gpus = 2, .memory = 20 << 20});
  CudaMachine machine;
  auto made = prepared(of, machine);
  auto& network = *std::get<std::unique_ptr<RunnableNetwork>>(made);
  const std::size_t kernels_alone = fake::device_bytes();
  const auto failed = replay(of.problem, of.plan.schedule, network, {});
  REQUIRE(std::holds_alternative<ReplayFailure>(failed));
  INFO(std::get<ReplayFailure>(failed).what);
  CHECK(std::get<ReplayFailure>(failed).what.starts_with("rank 0: out of memory in 'gpu0': step "));
  made = ReplayFailure{};
  machine.release();
  CHECK(fake::device_bytes() == 0);
  CHECK(kernels_alone < 20 << 20);
}

TEST_CASE("collectives are measured in place on every rank, whatever the order of streams", "[fake_cuda]") {
  for (const CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather}) {
    fake::begin({.gpus = 4});
    CudaMachine machine;
    Communicators communicators;
    const MeasuredRate rate = nccl_exchange_seconds(machine, communicators, kind, 4, Bytes{1 << 10}, 3);
    CHECK(rate.median > 0);
    CHECK(fake::strays() == 0);
    machine.release();
    CHECK(fake::device_bytes() == 0);
  }
}

/// Two ranks' all-reduce of four numbers, of which the second's call is another one.
ncclResult_t mismatched(const std::function<ncclResult_t(float* own, ncclComm_t, cudaStream_t)>& second) {
  fake::begin({.gpus = 2});
  std::array<ncclComm_t, 2> comms{};
  const std::array<int, 2> gpus{0, 1};
  CUDA_CHECK(ncclCommInitAll(comms.data(), 2, gpus.data()));
  const DeviceBytes first(0, std::vector<std::byte>(64)), other(1, std::vector<std::byte>(64));
  set_gpu(0);
  const OwnedStream here = new_stream();
  set_gpu(1);
  const OwnedStream there = new_stream();
  CUDA_CHECK(ncclGroupStart());
  CUDA_CHECK(ncclAllReduce(first.address(), first.address(), 4, ncclFloat32, ncclSum, comms[0], *here));
  const ncclResult_t at_once = second(static_cast<float*>(other.address()), comms[1], *there);
  const ncclResult_t status = ncclGroupEnd();
  for (ncclComm_t each : comms) CUDA_CHECK(ncclCommDestroy(each));
  return at_once == ncclSuccess ? status : at_once;
}

TEST_CASE("the made-up NCCL refuses what would hang or go astray on GPUs", "[fake_cuda]") {
  const auto all_reduce = [](float* at, std::size_t count, ncclComm_t comm, cudaStream_t stream) {
    return ncclAllReduce(at, at, count, ncclFloat32, ncclSum, comm, stream);
  };
  CHECK(mismatched([&](float* own, auto comm, auto stream) { return all_reduce(own, 4, comm, stream); }) ==
        ncclSuccess);
  CHECK(mismatched([&](float* own, auto comm, auto stream) { return all_reduce(own, 3, comm, stream); }) ==
        ncclInvalidUsage);
  CHECK(mismatched([](float* own, auto comm, auto stream) {
          return ncclAllGather(own, own + 4, 16, ncclUint8, comm, stream);
        }) != ncclSuccess);
  CHECK(mismatched([](float*, auto, auto) { return ncclSuccess; }) == ncclInvalidUsage);  // a rank that does not come
  CHECK(mismatched([](float* own, auto comm, auto stream) { return ncclSend(own, 4, ncclUint8, 0, comm, stream); }) ==
        ncclInvalidUsage);
  std::vector<float> on_host(4);
  CHECK(mismatched([&](float*, auto comm, auto stream) { return all_reduce(on_host.data(), 4, comm, stream); }) ==
        ncclInvalidArgument);
  CHECK(mismatched([&](float* own, auto comm, auto stream) { return all_reduce(own + 13, 4, comm, stream); }) ==
        ncclInvalidArgument);  // beyond its memory
}

}  // namespace
}  // namespace plimsoll
