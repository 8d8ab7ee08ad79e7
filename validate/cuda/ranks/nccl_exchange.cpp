#include "validate/cuda/ranks/nccl_exchange.h"

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

constexpr std::int64_t staging_alignment = 256;

std::int64_t staged(std::int64_t bytes) {
  return (bytes + staging_alignment - 1) / staging_alignment * staging_alignment;
}

void move_rows(const std::vector<RowMove>& moves, const std::byte* from, std::byte* to, cudaStream_t stream) {
  const auto size = [](std::int64_t bytes) { return static_cast<std::size_t>(bytes); };
  for (const RowMove& move : moves) {
    if (move.rows == 1) {
      CUDA_CHECK(cudaMemcpyAsync(to + move.to, from + move.from, size(move.bytes), cudaMemcpyDeviceToDevice, stream));
    } else {
      CUDA_CHECK(cudaMemcpy2DAsync(to + move.to, size(move.to_stride), from + move.from, size(move.from_stride),
                                   size(move.bytes), size(move.rows), cudaMemcpyDeviceToDevice, stream));
    }
  }
}

}  // namespace

NcclExchange::NcclExchange(const Graph& rank, const std::vector<RankLayout>& layouts, const Mesh& mesh,
                           CudaMachine& machine)
    : machine_(machine), ops_(rank.ops.size()) {
  for (std::size_t o = 0; o < rank.ops.size(); ++o) {
    const Op& op = rank.ops[o];
    if (!plimsoll::exchanges(op)) continue;
    const bool in_place = op.outputs.empty();
    const std::vector<ValueExchange> values =
        is_shift(op) ? std::vector<ValueExchange>{} : value_exchanges(rank, op, layouts, mesh);
    for (std::uint32_t first = 0; first < mesh.ranks(); ++first) {
      GroupWork group{exchanging_group(op, mesh, first), {}, {}};
      if (group.ranks.front() != first) continue;
      if (group.ranks.size() > 1) {
        group.communicators = communicators_.of(std::vector<int>(group.ranks.begin(), group.ranks.end()));
      }
      for (const ValueExchange& value : values) {
        group.values.push_back(group_exchange(value, group.ranks, in_place));
      }
      for (std::size_t k = 0; is_shift(op) && k < op.inputs.size(); ++k) {
        group.values.push_back(shift_exchange(rank[op.inputs[k]].bytes.count, group.ranks.size()));
      }
      staging_ = std::max(staging_, Bytes{staging_bytes(group)});
      ops_[o].push_back(std::move(group));
    }
  }
  for (std::uint32_t r = 0; r < mesh.ranks(); ++r) {
    machine_.gpu(r);
    set_gpu(r);
    ranks_.push_back({new_stream()});
  }
}

NcclExchange::~NcclExchange() {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].staging != nullptr) machine_.gpu(r).segments.give_back(ranks_[r].staging, staging_);
  }
}

/// Values of an op are exchanged together.
std::int64_t NcclExchange::staging_bytes(const GroupWork& group) const {
  std::int64_t sum = 0;
  for (const GroupExchange& value : group.values) sum += staged(value.staged_out) + staged(value.staged_in);
  return sum;
}

void NcclExchange::begin_run(bool poisons) {
  events_.clear();
  for (std::size_t r = 0; r < ranks_.size() && staging_ > Bytes{0}; ++r) {
    Rank& rank = ranks_[r];
    if (rank.staging == nullptr) rank.staging = machine_.gpu(r).segments.take(staging_);
    if (rank.staging == nullptr) {
      throw CudaError("out of memory: no room for " + std::to_string(staging_.count) +
                      " B that NCCL sends and receives");
    }
    set_gpu(r);
    const auto size = static_cast<std::size_t>(staging_.count);
    if (poisons) CUDA_CHECK(cudaMemsetAsync(rank.staging, 0xFF, size, *rank.stream));
  }
}

/// What the second does next comes behind what the first has done.
void NcclExchange::order(cudaStream_t first, cudaStream_t second, std::uint32_t rank) {
  set_gpu(rank);
  const OwnedEvent& event = events_.emplace_back(new_event());
  CUDA_CHECK(cudaEventRecord(*event, first));
  CUDA_CHECK(cudaStreamWaitEvent(second, *event, 0));
}

std::vector<NcclExchange::Ends> NcclExchange::ends_of(const GroupWork& group, std::size_t place,
                                                      const KernelArguments& arguments) const {
  std::vector<Ends> made;
  std::byte* staging = ranks_[group.ranks[place]].staging;
  for (std::size_t k = 0; k < group.values.size(); ++k) {
    void* to = arguments.outputs.empty() ? arguments.inputs[k] : arguments.outputs[k];
    Ends& ends = made.emplace_back();
    ends.from = static_cast<std::byte*>(arguments.inputs[k]);
    ends.to = static_cast<std::byte*>(to);
    ends.out = staging;
    staging += staged(group.values[k].staged_out);
    ends.in = staging;
    staging += staged(group.values[k].staged_in);
  }
  return made;
}

void NcclExchange::call(const GroupWork& group, std::size_t value, std::size_t place, const Ends& ends) {
  const GroupExchange& exchange = group.values[value];
  if (exchange.call == GroupExchange::Call::none) return;
  const RankCarries& carries = exchange.ranks[place];
  const ncclComm_t communicator = group.communicators[place];
  const cudaStream_t stream = *ranks_[group.ranks[place]].stream;
  const std::byte* out = carries.sends_from ? ends.from + *carries.sends_from : ends.out;
  std::byte* in = carries.receives_at ? ends.to + *carries.receives_at : ends.in;
  const auto each = static_cast<std::size_t>(exchange.each);
  switch (exchange.call) {
    case GroupExchange::Call::none:
      return;
    case GroupExchange::Call::all_reduce:
      return CUDA_CHECK(ncclAllReduce(out, in, each / 4, ncclFloat32, ncclSum, communicator, stream));
    case GroupExchange::Call::reduce_scatter:
      return CUDA_CHECK(ncclReduceScatter(out, in, each / 4, ncclFloat32, ncclSum, communicator, stream));
    case GroupExchange::Call::all_gather:
      return CUDA_CHECK(ncclAllGather(out, in, each, ncclUint8, communicator, stream));
    case GroupExchange::Call::all_to_all:
      break;
  }
  for (std::size_t peer = 0; peer < group.ranks.size(); ++peer) {
    const auto sent = static_cast<std::size_t>(carries.sent[peer]);
    const auto received = static_cast<std::size_t>(carries.received[peer]);
    if (sent > 0) CUDA_CHECK(ncclSend(out, sent, ncclUint8, static_cast<int>(peer), communicator, stream));
    if (received > 0) CUDA_CHECK(ncclRecv(in, received, ncclUint8, static_cast<int>(peer), communicator, stream));
    out += sent;
    in += received;
  }
}

void NcclExchange::issue(OpId op, std::span<const RankCall> by_rank) {
  const auto each = [&](auto work) {
    for (const GroupWork& group : ops_[op.index]) {
      for (std::size_t place = 0; place < group.ranks.size(); ++place) {
        const std::uint32_t rank = group.ranks[place];
        work(group, place, rank, ends_of(group, place, by_rank[rank].arguments));
      }
    }
  };
  each([&](const GroupWork& group, std::size_t place, std::uint32_t rank, const std::vector<Ends>& ends) {
    order(by_rank[rank].stream, *ranks_[rank].stream, rank);
    for (std::size_t k = 0; k < ends.size(); ++k) {
      const RankCarries& carries = group.values[k].ranks[place];
      move_rows(carries.keeps, ends[k].from, ends[k].to, *ranks_[rank].stream);
      move_rows(carries.packs, ends[k].from, ends[k].out, *ranks_[rank].stream);
    }
  });
  NcclCalls together;
  each([&](const GroupWork& group, std::size_t place, std::uint32_t, const std::vector<Ends>& ends) {
    for (std::size_t k = 0; k < ends.size(); ++k) call(group, k, place, ends[k]);
  });
  together.end();
  each([&](const GroupWork& group, std::size_t place, std::uint32_t rank, const std::vector<Ends>& ends) {
    for (std::size_t k = 0; k < ends.size(); ++k) {
      move_rows(group.values[k].ranks[place].unpacks, ends[k].in, ends[k].to, *ranks_[rank].stream);
    }
    set_gpu(rank);
    order(*ranks_[rank].stream, by_rank[rank].stream, rank);
  });
}

}  // namespace plimsoll
