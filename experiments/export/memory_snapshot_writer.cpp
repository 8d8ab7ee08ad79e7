#include <bit>
#include <string>

#include "experiments/export/memory_snapshot.h"
#include "experiments/export/snapshot_names.h"
#include "sim/io/pickle.h"

namespace plimsoll {
namespace {

class SnapshotWriter {
 public:
  explicit SnapshotWriter(const MemorySnapshot& snapshot) : snapshot_(snapshot) {}

  std::string write() && {
    out_.dictionary([&] {
      out_.key("segments");
      out_.list(snapshot_.segments.size(), [&](std::size_t s) { segment(snapshot_.segments[s]); });
      out_.key("device_traces");
      out_.list(snapshot_.traces.size(), [&](std::size_t d) {
        const std::vector<SnapshotEvent>& trace = snapshot_.traces[d];
        out_.list(trace.size(), [&](std::size_t e) { event(trace[e]); });
      });
      out_.key("allocator_settings");
      settings(snapshot_.settings ? *snapshot_.settings : CachingSettings{});
      out_.key("external_annotations");
      out_.list(0, [](std::size_t) {});
    });
    return std::move(out_).finish();
  }

 private:
  void number(std::string_view key, std::int64_t value) {
    out_.key(key);
    out_.integer(value);
  }
  void text(std::string_view key, std::string_view value) {
    out_.key(key);
    out_.text(value);
  }
  void flag(std::string_view key, bool value) {
    out_.key(key);
    out_.boolean(value);
  }
  void frames(const std::optional<std::uint32_t>& frame) {
    out_.key("frames");
    out_.list(frame ? 1 : 0, [&](std::size_t) {
      out_.dictionary([&] {
        text("name", snapshot_.frames[*frame].name);
        text("filename", snapshot_.frames[*frame].file);
        number("line", snapshot_.frames[*frame].line);
      });
    });
  }

  void segment(const SnapshotSegment& segment) {
    Bytes allocated, active, requested;
    for (const SnapshotBlock& block : segment.blocks) {
      if (block.state == BlockState::allocated) allocated += block.size;
      if (block.state == BlockState::free) continue;
      active += block.size;
      requested += block.requested;
    }
    out_.dictionary([&] {
      number("device", segment.device);
      number("address", segment.address);
      number("total_size", segment.total.count);
      number("allocated_size", allocated.count);
      number("active_size", active.count);
      number("requested_size", requested.count);
      number("stream", segment.stream);
      text("segment_type", segment.small ? "small" : "large");
      out_.key("segment_pool_id");
      out_.list(2, [&](std::size_t) { out_.integer(0); });
      flag("is_expandable", segment.expandable);
      frames(std::nullopt);
      out_.key("blocks");
      out_.list(segment.blocks.size(), [&](std::size_t b) { block(segment.blocks[b]); });
    });
  }

  void block(const SnapshotBlock& block) {
    out_.dictionary([&] {
      number("address", block.address);
      number("size", block.size.count);
      number("requested_size", block.requested.count);
      text("state", snapshot_name(snapshot_block_states, block.state));
      frames(block.frame);
    });
  }

  void event(const SnapshotEvent& event) {
    out_.dictionary([&] {
      text("action", snapshot_name(snapshot_actions, event.action));
      number(event.action == AllocatorAction::oom ? "device_free" : "addr", event.address);
      number("size", event.size.count);
      number("stream", event.stream);
      number("time_us", event.time_us);
      frames(event.frame);
    });
  }

  void settings(const CachingSettings& settings) {
    out_.dictionary([&] {
      text("PYTORCH_CUDA_ALLOC_CONF", "");
      number("max_split_size", settings.max_split ? settings.max_split->count : -1);
      out_.key("garbage_collection_threshold");
      out_.real(settings.gc_threshold);
      flag("expandable_segments", settings.segments == Segments::expandable);
      flag("pinned_use_cuda_host_register", false);
      number("pinned_num_register_threads", 1);
      flag("release_lock_on_cudamalloc", false);
      flag("pinned_use_background_threads", false);
      out_.key("roundup_power2_divisions");
      out_.dictionary([&] {
        for (std::size_t power = 0; power < settings.roundup.size(); ++power) {
          number(std::to_string(1U << power), settings.roundup[power]);
        }
      });
    });
  }

  const MemorySnapshot& snapshot_;
  PickleWriter out_;
};

}  // namespace

std::string pickled(const MemorySnapshot& snapshot) {
  return SnapshotWriter(snapshot).write();
}

}  // namespace plimsoll
