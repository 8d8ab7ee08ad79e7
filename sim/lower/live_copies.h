#pragma once
// What lowering has issued so far: steps, the buffers that are live in each memory, who made them and who has used them
// since. Copies between memories wait for makers, frees for all users.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/core/partition.h"
#include "sim/core/tape.h"
#include "sim/lower/copy_table.h"
#include "sim/lower/schedule_builder.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// Why there is no schedule: the platform lacks a route that a tape needs, a partial gradient is not where it is
/// summed, or what a later slice of a sequence reads is gone.
struct CannotLower {
  std::string why;
};

class LiveCopies {
 public:
  LiveCopies(const Problem&, std::span<const Tape>);

  MemoryId memory_of(DeviceId device) const { return problem_.platform[device].memory; }
  /// The memory at a place, seen from the device; there must be one.
  MemoryId memory_at(DeviceId device, MemoryId place) {
    const std::size_t relative = place::device.index - place.index;
    if (relative >= relative_places) return place;
    const std::optional<MemoryId>& known = at_[device.index][relative];
    return known ? *known : asked_memory_at(device, place);
  }
  CopyKey key(TensorId t, std::uint32_t micro_batch, MemoryId memory) const {
    const Tensor& tensor = graph_[t];
    return {tensor.storage.index, per_micro_batch(tensor.kind) ? micro_batch : 0, memory.index};
  }
  /// Of the device's copy at a place.
  CopyKey key_at(TensorId t, std::uint32_t micro_batch, DeviceId device, MemoryId place) {
    const MemoryId memory = memory_at(device, place);
    CopyKey k = key(t, micro_batch, memory);
    if (memory != memory_of(device) && per_micro_batch(graph_[t].kind)) k.from = device.index + 1;
    return k;
  }
  /// By a host's processor; throws where the platform does not say how fast that is.
  Seconds duration_at(MemoryId host, OpId) const;
  std::uint32_t chunks_of(TensorId t) const { return chunks_[graph_[t].storage.index]; }

  /// The number of a form that the tape names; 0 for the value itself.
  std::uint32_t form(const Tape&, Form) const;
  /// The form that an op reads of what is at the key.
  CopyKey read_by(const Op& op, TensorId t, const CopyKey& k) const {
    return codecs_.empty() ? k : form_read_by(op, t, k);
  }
  /// A packed form that it reads beside that.
  std::optional<CopyKey> read_beside(const Op& op, TensorId t, const CopyKey& k) const {
    return codecs_.empty() ? std::nullopt : form_read_beside(op, t, k);
  }

  bool contains(const CopyKey& k) const { return live_.contains(k); }
  Copy* find(const CopyKey& k) { return live_.find(k); }
  Copy& operator[](const CopyKey&);  ///< which is live
  /// What is live at one key is at another from now on.
  void rename(const CopyKey& from, const CopyKey& to);

  /// What is there from the start, where the tapes say its home is.
  void make_resident(TensorId, const Part&);

  /// Whether an input of the network appears in the step.
  bool fills_inputs(const NewStep&) const;
  /// What is there, or a new buffer that the step allocates; whether it is new.
  std::pair<Copy*, bool> found_or_made_by(NewStep&, TensorId, const CopyKey&);
  /// A new buffer that the step allocates.
  Copy& made_by(NewStep&, TensorId, const CopyKey&);

  /// What the step reads or changes; the network's input appears with its first reader.
  Copy& read(TensorId, const CopyKey&, bool changes, NewStep&);

  /// What is there of a micro-batch may be several parts', which share its device.
  void hold(TensorId, Copy&, PartId by) const;

  /// On the device's stream of that way. `send` waits for the maker alone, other labels also for the device's last
  /// compute.
  StepId copy(TensorId, const CopyKey& from, const CopyKey& to, const Stream&, StepKind label);
  /// Of the tape's pack or unpack, on the device's compute stream: the packed form becomes live beside the value, or
  /// what it restores beside the packed form, unless another part has made it there. `packed` is the key of that.
  void convert(const Tape&, const Action&, const CopyKey& packed, DeviceId, PartId by);
  /// Where one of the inputs is a packed form that the op's product is computed on, its time and workspace.
  void compute_on_packed(std::span<const std::pair<TensorId, Copy*>> inputs, DeviceId, NewStep&) const;
  /// What the op has made from these inputs, of which some may be approximations.
  void carry_approximations(const Op&, std::span<const std::pair<TensorId, Copy*>> inputs,
                            std::span<const std::pair<TensorId, Copy*>> outputs);
  /// What the source holds is an approximation, so that the target does, too.
  void carry_approximation(const Copy& source, Copy& target);
  /// In one collective the gradients of every device become the sums of all; each device has them.
  void all_reduce(std::span<const TensorId> gradients, std::span<const DeviceId>);
  /// For what is at a key, and until what the device held of it is gone.
  void wait_for_copy(const CopyKey& at, const CopyKey& on_device, DeviceId);

  /// The buffer dies with its last user, which waits for the last user on every other stream. Where that would hold
  /// back a kernel until an offload ends, or any step until others end that it need not wait for, a step that does
  /// nothing else frees it.
  void drop(const CopyKey&, DeviceId);

  StreamId stream(DeviceId device, Way way, std::uint32_t index = 0) { return builder_.stream(device, way, index); }
  /// Makes room for so many steps.
  void expect(std::size_t steps);
  StepId add(const NewStep&);
  StepId add_compute(const NewStep&, DeviceId);
  void wait(StepId step, StepId earlier) { builder_.wait(step, earlier); }
  Bytes bytes_of(const Copy& copy) const { return builder_[copy.buffer].bytes; }

  /// Adds what the device's next compute waits for, beside its makers; nothing more once it has been asked.
  void take_waits(DeviceId device, std::vector<StepId>& to) {
    to.insert(to.end(), waits_[device.index].begin(), waits_[device.index].end());
    waits_[device.index].clear();
  }
  void wait_at_next(DeviceId device, const std::vector<StepId>& steps) {
    waits_[device.index].insert(waits_[device.index].end(), steps.begin(), steps.end());
  }
  std::optional<StepId> last_compute(DeviceId device) const { return last_compute_[device.index]; }

  Schedule finish();

 private:
  static constexpr std::size_t link_speeds = 2;  ///< of transfers that have links alone, or share them with all devices

  /// When a step starts and ends if nothing but its waits and its stream holds it back, at each speed of links. A step
  /// that waits for another, whatever the durations, starts no earlier than that ends.
  struct Expected {
    std::array<float, link_speeds> start{}, end{};
  };
  struct Issued {
    StreamId stream;
    StepKind kind;
    Expected expected;
  };

  BufferId new_buffer(TensorId, const CopyKey&);
  CopyKey form_read_by(const Op&, TensorId, CopyKey) const;
  std::optional<CopyKey> form_read_beside(const Op&, TensorId, CopyKey) const;
  std::optional<CodecId> codec_of_packed(const CopyKey&) const;
  void convert_chunk(TensorId, const CopyKey& from, const CopyKey& to, DeviceId);
  void mark_lossy(Copy&);
  bool reads_as_exact(const Op&, TensorId, const Copy&) const;
  void make_resident(TensorId, const CopyKey&);
  void refuse_without_route(MemoryId from, MemoryId to);

  Expected expected_of(const NewStep&);
  void count_issued(const Issued&);
  bool ends_before(StepId, StepId other) const;
  std::optional<Way> way_of_release(const Copy&, StepId last) const;

  static constexpr std::size_t relative_places = 3;
  MemoryId asked_memory_at(DeviceId, MemoryId place);

  const Problem& problem_;
  const Graph& graph_;
  std::vector<Codec> codecs_;
  std::vector<std::uint32_t> chunks_;                                     // by storage
  std::vector<std::vector<MemoryId>> homes_;                              // by storage
  std::vector<std::array<std::optional<MemoryId>, relative_places>> at_;  // by device: memories at places, once asked
  ScheduleBuilder builder_;
  CopyTable live_;
  std::unordered_map<CopyKey, StepId, CopyKeyHash> released_;  // by which step, where that is its only work
  RouteFinder routes_;
  std::map<Endpoints, bool> reachable_;
  std::vector<std::vector<StepId>> waits_;                   // by device: what its next compute waits for
  std::vector<std::optional<StepId>> last_compute_;          // by device
  std::vector<Issued> issued_;                               // steps
  std::vector<std::array<float, link_speeds>> stream_ends_;  // by stream: of its last step
  std::vector<std::optional<Route>> known_routes_;           // by id, of copies
};

}  // namespace plimsoll
