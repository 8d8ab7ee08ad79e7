// NCCL as far as the backend uses it, for ranks that one thread issues for. A rank's part reads what it sends when its
// stream comes to it, and writes what it receives some time behind, when all ranks of the communicator have come. Calls
// that would hang or go astray on GPUs are refused: other kinds, counts or types than other ranks', in another order,
// and memory or streams of another GPU.

#include <nccl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/fake_cuda/fake_cuda.h"
#include "validate/backend.h"
#include "validate/cuda/load_libraries.h"

struct ncclComm {
  std::shared_ptr<std::vector<int>> gpus;  ///< shared by all of a communicator
  int place = 0;
};

namespace {

using plimsoll::fake::Arrivals;

enum class Kind : std::uint8_t { all_reduce, reduce_scatter, all_gather, send, receive };

struct Call {
  Kind kind = Kind::all_reduce;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  int peer = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;

  bool is_between_two() const { return kind == Kind::send || kind == Kind::receive; }
  bool goes_with(const Call& other) const { return kind == other.kind && count == other.count && type == other.type; }
  std::size_t bytes() const { return count * (type == ncclFloat32 ? 4 : 1); }
  std::size_t ranks() const { return comm->gpus->size(); }
  std::size_t read() const {
    return kind == Kind::receive ? 0 : kind == Kind::reduce_scatter ? bytes() * ranks() : bytes();
  }
  std::size_t written() const {
    return kind == Kind::send ? 0 : kind == Kind::all_gather ? bytes() * ranks() : bytes();
  }
};

struct Group {
  int depth = 0;
  std::vector<Call> calls;
};

Group& group() {
  static Group open;
  return open;
}

using Bytestring = std::vector<std::byte>;

/// What all ranks of a communicator do together.
struct Together {
  std::vector<std::vector<Call>> calls;        // by place
  std::vector<std::vector<Bytestring>> given;  // by place and call: as it was when the rank came
};

/// As a ring sums: a block by each rank in turn, beginning behind the one that ends with it.
Bytestring ring_sum(const Together& all, std::size_t call) {
  const std::size_t ranks = all.calls.size();
  Bytestring sum = all.given[0][call];
  const std::size_t numbers = sum.size() / 4, block = (numbers + ranks - 1) / ranks;
  for (std::size_t i = 0; i < numbers; ++i) {
    const std::size_t first = (i / block + 1) % ranks;
    float made = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      float part = 0;
      std::memcpy(&part, all.given[(first + r) % ranks][call].data() + 4 * i, 4);
      made = r == 0 ? part : made + part;
    }
    std::memcpy(sum.data() + 4 * i, &made, 4);
  }
  return sum;
}

/// What the nth receive from `peer` gets.
const Bytestring& sent_to(const Together& all, std::size_t place, std::size_t peer, std::size_t nth) {
  for (std::size_t k = 0; k < all.calls[peer].size(); ++k) {
    const Call& call = all.calls[peer][k];
    if (call.kind == Kind::send && static_cast<std::size_t>(call.peer) == place && nth-- == 0)
      return all.given[peer][k];
  }
  std::abort();
}

void write(const Together& all, std::size_t place) {
  std::map<int, std::size_t> received;
  for (std::size_t k = 0; k < all.calls[place].size(); ++k) {
    const Call& call = all.calls[place][k];
    auto* to = static_cast<std::byte*>(call.to);
    if (call.kind == Kind::receive) {
      const Bytestring& sent = sent_to(all, place, static_cast<std::size_t>(call.peer), received[call.peer]++);
      std::ranges::copy(sent, to);
    } else if (call.kind == Kind::all_gather) {
      for (std::size_t r = 0; r < all.calls.size(); ++r) std::ranges::copy(all.given[r][k], to + r * call.bytes());
    } else if (call.kind != Kind::send) {
      const Bytestring sum = ring_sum(all, k);
      const std::size_t first = call.kind == Kind::reduce_scatter ? place * call.bytes() : 0;
      std::copy_n(sum.begin() + static_cast<std::ptrdiff_t>(first), call.bytes(), to);
    }
  }
}

void come(Together& all, std::size_t place) {
  for (std::size_t k = 0; k < all.calls[place].size(); ++k) {
    const Call& call = all.calls[place][k];
    const auto* from = static_cast<const std::byte*>(call.from);
    all.given[place].emplace_back(from, from + call.read());
  }
  for (const Call& call : all.calls[place]) std::memset(call.to, 0xFF, call.written());  // from here on any time
}

bool is_in_place_elsewhere(const Call& call) {
  const auto *from = static_cast<const std::byte*>(call.from), *to = static_cast<const std::byte*>(call.to);
  const auto place = static_cast<std::size_t>(call.comm->place);
  const bool apart = to + call.written() <= from || from + call.read() <= to;
  if (apart || call.is_between_two()) return false;
  if (call.kind == Kind::all_gather) return from != to + place * call.bytes();
  return to != from + (call.kind == Kind::reduce_scatter ? place * call.bytes() : 0);
}

ncclResult_t refused(const std::vector<std::vector<Call>>& calls) {
  std::map<std::pair<std::size_t, std::size_t>, std::vector<Call>> sent, received;  // from, to
  std::vector<std::vector<Call>> together(calls.size());
  for (std::size_t r = 0; r < calls.size(); ++r) {
    for (const Call& call : calls[r]) {
      const int gpu = call.comm->gpus->at(r);
      const bool is_here =
          plimsoll::fake::lies_on(gpu, call.from, call.read()) && plimsoll::fake::lies_on(gpu, call.to, call.written());
      if (!is_here || plimsoll::fake::gpu_of(call.stream) != gpu) return ncclInvalidArgument;
      if (is_in_place_elsewhere(call)) return ncclInvalidArgument;
      plimsoll::fake::use(call.from, call.stream);
      plimsoll::fake::use(call.to, call.stream);
      const auto peer = static_cast<std::size_t>(call.peer);
      if (call.kind == Kind::send) sent[{r, peer}].push_back(call);
      if (call.kind == Kind::receive) received[{peer, r}].push_back(call);
      if (!call.is_between_two()) together[r].push_back(call);
    }
  }
  const auto fits = [](const Call& a, const Call& b) { return a.goes_with(b); };
  for (const std::vector<Call>& own : together) {
    if (!std::ranges::equal(own, together[0], fits)) return ncclInvalidUsage;
  }
  const auto is_received = [](const Call& a, const Call& b) { return a.count == b.count && a.type == b.type; };
  for (const auto& [ends, all] : received) {
    if (!std::ranges::equal(all, sent[ends], is_received)) return ncclInvalidUsage;
  }
  return sent.size() == received.size() ? ncclSuccess : ncclInvalidUsage;
}

ncclResult_t issue(const std::vector<Call>& calls) {
  std::vector<std::shared_ptr<std::vector<int>>> communicators;
  for (const Call& call : calls) {
    if (std::ranges::find(communicators, call.comm->gpus) == communicators.end()) {
      communicators.push_back(call.comm->gpus);
    }
  }
  for (const auto& gpus : communicators) {
    const auto all = std::make_shared<Together>();
    all->calls.resize(gpus->size());
    all->given.resize(gpus->size());
    for (const Call& call : calls) {
      if (call.comm->gpus == gpus) all->calls[static_cast<std::size_t>(call.comm->place)].push_back(call);
    }
    if (const ncclResult_t status = refused(all->calls); status != ncclSuccess) return status;
    const auto arrivals = std::make_shared<Arrivals>(gpus->size());
    for (std::size_t r = 0; r < gpus->size(); ++r) {
      if (all->calls[r].empty()) return ncclInvalidUsage;
      const cudaStream_t stream = all->calls[r].front().stream;
      plimsoll::fake::enqueue_meeting(
          stream, arrivals, [all, r] { come(*all, r); }, [all, r] { write(*all, r); });
    }
  }
  return ncclSuccess;
}

ncclResult_t take(const Call& call) {
  if (call.type != ncclFloat32 && call.type != ncclUint8) return ncclInvalidArgument;
  group().calls.push_back(call);
  return group().depth > 0 ? ncclSuccess : ncclGroupEnd();
}

}  // namespace

namespace plimsoll {

void load_nccl() {
  if (!fake::machine().has_nccl) throw BackendError("no library for the CUDA backend: libnccl.so.2 is nowhere");
}

}  // namespace plimsoll

extern "C" {

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* gpus) {
  const auto all = std::make_shared<std::vector<int>>(gpus, gpus + count);
  for (int i = 0; i < count; ++i) {
    const bool is_there = gpus[i] >= 0 && gpus[i] < plimsoll::fake::machine().gpus;
    if (!is_there || std::count(all->begin(), all->end(), gpus[i]) != 1) return ncclInvalidArgument;
    comms[i] = new ncclComm{all, i};
  }
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t status) {
  return status == ncclInvalidUsage ? "invalid usage" : "invalid argument";
}
ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  ++group().depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group().depth > 0 && --group().depth > 0) return ncclSuccess;
  const std::vector<Call> calls = std::exchange(group().calls, {});
  return issue(calls);
}
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum || type != ncclFloat32) return ncclInvalidArgument;
  return take({Kind::all_reduce, from, to, count, type, 0, comm, stream});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum || type != ncclFloat32) return ncclInvalidArgument;
  return take({Kind::reduce_scatter, from, to, count, type, 0, comm, stream});
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return take({Kind::all_gather, from, to, count, type, 0, comm, stream});
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return take({Kind::send, from, nullptr, count, type, peer, comm, stream});
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return take({Kind::receive, nullptr, to, count, type, peer, comm, stream});
}

}  // extern "C"
