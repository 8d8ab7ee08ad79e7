#include "sim/bound/kept_ways.h"

#include <algorithm>

#include "sim/codec/predicted_error.h"
#include "sim/core/codec.h"

namespace plimsoll {
namespace {

constexpr Codec signs_of_values{.kind = CodecKind::mask, .bits = 1};

class WaysOfValues {
 public:
  WaysOfValues(const SnapshotModel& model, const Instant& instant, DeviceId device, std::span<const Codec> codecs)
      : model_(model),
        graph_(model.problem->graph),
        instant_(instant),
        device_(model.problem->platform[device]),
        codecs_(codecs),
        shares_(graph_),
        tensors_(model.values.size()) {
    for (std::uint32_t t = 0; t < model.value_of.size(); ++t) {
      if (model.value_of[t]) tensors_[*model.value_of[t]].push_back({t});
    }
    made_.values.resize(model.values.size());
    for (std::uint32_t v = 0; v < model.values.size(); ++v) add(v);
  }

  KeptWays ways() && { return std::move(made_); }

 private:
  /// An op that reads the value, and by which of its tensors.
  struct Reader {
    OpId op;
    TensorId tensor;
    bool takes_signs = false;
  };

  void add(std::uint32_t v) {
    const SnapshotValue& value = model_.values[v];
    KeptValue& kept = made_.values[v];
    std::vector<Reader> after, others;
    for (const std::uint32_t o : value.readers) {
      const Op& op = graph_.ops[o];
      const bool is_after = instant_.side[o] == Side::after;
      kept.is_read_after |= is_after;
      if (!is_backward(op.phase)) {
        kept.forward_after |= is_after;
      } else if (instant_.side[o] != Side::itself) {
        (is_after ? after : others).push_back(reader_of(v, o));
      }
    }
    const Bytes whole = bytes_of(v);
    kept.ways.push_back({.bytes = whole});
    if (!value.maker || kept.forward_after) return;  // the network's input waits as it is
    if (kept.is_read_after) {
      add_ways(kept.ways, v, after, others, whole);
    } else if (!others.empty()) {  // some of these, of which some may have run before, without an error
      add_any_way(kept.ways, v, others, whole);
    }
  }

  Reader reader_of(std::uint32_t v, std::uint32_t o) const {
    const Op& op = graph_.ops[o];
    const auto is_its = [&](TensorId t) { return model_.value_of[t.index] == v; };
    const TensorId t = *std::ranges::find_if(op.inputs, is_its);
    return {{o}, t, reads_packed(op, t, signs_of_values)};
  }

  Bytes bytes_of(std::uint32_t v) const {
    Bytes least = graph_[model_.values[v].tensor].bytes;
    for (const TensorId t : tensors_[v]) least = std::min(least, graph_[t].bytes);
    return least;
  }

  /// The least of what its tensors take in that form; nothing where none can be packed.
  std::optional<KeptWay> packed(std::uint32_t v, const Codec& codec) const {
    std::optional<KeptWay> way;
    const double streams = std::max(1U, device_.compute_streams);
    for (const TensorId t : tensors_[v]) {
      if (cannot_pack(codec, graph_, graph_[t])) continue;
      const KeptWay of_it{.bytes = packed_bytes(codec, graph_, graph_[t]),
                          .pack = 1 / streams * pack_time(codec, graph_, graph_[t], device_),
                          .unpack = 1 / streams * unpack_time(codec, graph_, graph_[t], device_)};
      if (!way) way = of_it;
      way->bytes = std::min(way->bytes, of_it.bytes);
      way->pack = std::min(way->pack, of_it.pack);
      way->unpack = std::min(way->unpack, of_it.unpack);
    }
    return way;
  }

  std::optional<KeptWay> signs(std::uint32_t v, Bytes whole) const {
    std::optional<KeptWay> way = packed(v, signs_of_values);
    if (!way || way->bytes >= whole) return std::nullopt;
    way->signs = true;
    return way;
  }

  /// All of the readers run.
  void add_ways(std::vector<KeptWay>& ways, std::uint32_t v, const std::vector<Reader>& readers,
                const std::vector<Reader>& others, Bytes whole) {
    const bool any_signs = std::ranges::any_of(readers, &Reader::takes_signs);
    const std::optional<KeptWay> beside = any_signs ? signs(v, whole) : std::nullopt;
    if (std::ranges::all_of(readers, &Reader::takes_signs)) {
      if (beside) ways.push_back(*beside);
      return;
    }
    for (const Codec& codec : codecs_) {
      std::optional<KeptWay> way = packed(v, codec);
      if (!way || way->bytes >= whole) continue;
      way->codec = codec;
      way->signs = any_signs;
      if (beside) {
        way->bytes += beside->bytes;
        way->pack += beside->pack;
      }
      for (const Reader& reader : readers) {
        if (reader.takes_signs) continue;
        const double lost = shares_.of_packing(codec, reader.tensor);
        const bool has_both = reads_beside(graph_[reader.op], reader.tensor, signs_of_values);
        const std::optional<Codec> seen = has_both ? std::optional(signs_of_values) : std::nullopt;
        way->square += shares_.of(reader.op, reader.tensor, lost, seen);
        made_.errors_add_up &= shares_.adds_up(reader.op, reader.tensor, lost, seen);
      }
      way->likely = way->square;
      for (const Reader& reader : others) {
        if (!reader.takes_signs)
          way->likely += lost_beside(reader, shares_.of_packing(codec, reader.tensor), deepest).all;
      }
      ways.push_back(*way);
    }
  }

  /// Some of the readers run; the error is the least that one of them makes.
  void add_any_way(std::vector<KeptWay>& ways, std::uint32_t v, const std::vector<Reader>& readers, Bytes whole) {
    const bool any_signs = std::ranges::any_of(readers, &Reader::takes_signs);
    if (any_signs) {
      if (const std::optional<KeptWay> of_signs = signs(v, whole)) ways.push_back(*of_signs);
    }
    if (std::ranges::all_of(readers, &Reader::takes_signs)) return;
    for (const Codec& codec : codecs_) {
      std::optional<KeptWay> way = packed(v, codec);
      if (!way || way->bytes >= whole) continue;
      way->codec = codec;
      way->signs = any_signs;
      std::optional<double> least;
      for (const Reader& reader : readers) {
        const double lost = reader.takes_signs ? 0 : shares_.of_packing(codec, reader.tensor);
        const Lost adds = lost_beside(reader, lost, deepest);
        least = std::min(least.value_or(adds.least), adds.least);
        way->likely += adds.all;
      }
      way->square = least.value_or(0);
      ways.push_back(*way);
    }
  }

  /// Of an error in what an op reads: what it adds at least, if it runs after the instant, and if all do that read what
  /// it makes, and so on.
  struct Lost {
    double least = 0, all = 0;
  };

  /// The op, beside the instant, makes one tensor, which is not there otherwise: else it need not run. Some of those
  /// that read it run.
  Lost lost_beside(const Reader& reader, double lost, int depth) {
    const Op& op = graph_[reader.op];
    const SnapshotOp& its = model_.ops[reader.op.index];
    const bool is_beside = instant_.side[reader.op.index] == Side::beside && is_backward(op.phase);
    if (!(lost > 0) || depth == 0 || !is_beside || !its.is_there) return {};
    if (its.makes.size() != 1 || op.outputs.size() != 1) return {};
    const TensorId made = op.outputs.front();
    const bool is_gradient = graph_[made].kind == TensorKind::gradient;
    double passed = lost;
    if (graph_[reader.tensor].kind == TensorKind::gradient) {
      passed *= shares_.part_of(reader.op, reader.tensor);
    } else {
      made_.errors_add_up &= shares_.adds_up(reader.op, reader.tensor, lost);
      passed = shares_.through(reader.op, reader.tensor, made, lost);
    }
    Lost sum;
    std::optional<double> least;
    for (const std::uint32_t o : model_.values[its.makes.front()].readers) {
      const Reader next = reader_of(its.makes.front(), o);
      if (next.takes_signs) return {};
      if (instant_.side[o] != Side::after) {
        const Lost adds = lost_beside(next, passed, depth - 1);
        least = std::min(least.value_or(adds.least), adds.least);
        sum.all += adds.all;
        continue;
      }
      if (!is_gradient) made_.errors_add_up &= shares_.adds_up(next.op, next.tensor, passed);
      const double adds =
          is_gradient ? shares_.of_gradient(next.op, next.tensor, passed) : shares_.of(next.op, next.tensor, passed);
      sum.least += adds;
      sum.all += adds;
    }
    if (!(sum.least > 0)) sum.least = least.value_or(0);
    return sum;
  }

  static constexpr int deepest = 14;  // ops one behind the other

  const SnapshotModel& model_;
  const Graph& graph_;
  const Instant& instant_;
  const Device& device_;
  std::span<const Codec> codecs_;
  ErrorShares shares_;
  std::vector<std::vector<TensorId>> tensors_;  // by value
  KeptWays made_;
};

}  // namespace

KeptWays kept_ways(const SnapshotModel& model, const Instant& instant, DeviceId device, std::span<const Codec> codecs) {
  return WaysOfValues(model, instant, device, codecs).ways();
}

}  // namespace plimsoll
