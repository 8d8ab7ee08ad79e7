// Forms of values: packed ones, what they restore, and which buffers hold approximations because of that.

#include <algorithm>
#include <set>

#include "sim/codec/packed_products.h"
#include "sim/core/expects.h"
#include "sim/lower/live_copies.h"

namespace plimsoll {
namespace {

// Numbers of forms: 0 the value itself, then two a codec.
constexpr std::uint32_t packed_by(std::uint32_t codec) {
  return 2 * codec + 1;
}
constexpr std::uint32_t restored_by(std::uint32_t codec) {
  return 2 * codec + 2;
}
constexpr bool is_packed(std::uint32_t form) {
  return form % 2 == 1;
}
constexpr std::uint32_t codec_of(std::uint32_t form) {
  return (form - 1) / 2;
}

}  // namespace

std::uint32_t LiveCopies::form(const Tape& tape, Form form) const {
  if (form.kind == Form::Kind::plain) return 0;
  const auto found = std::ranges::find(codecs_, tape.codecs[form.codec]);
  EXPECTS(found != codecs_.end());
  const auto codec = static_cast<std::uint32_t>(found - codecs_.begin());
  return form.kind == Form::Kind::packed ? packed_by(codec) : restored_by(codec);
}

CopyKey LiveCopies::form_read_by(const Op& op, TensorId t, CopyKey k) const {
  const auto is_there = [&](std::uint32_t form) {
    k.form = form;
    return live_.contains(k);
  };
  const auto codecs = static_cast<std::uint32_t>(codecs_.size());
  for (std::uint32_t c = 0; c < codecs; ++c) {
    if (is_there(restored_by(c))) return k;
  }
  if (is_there(0)) return k;
  for (std::uint32_t c = 0; c < codecs; ++c) {
    if (reads_packed(op, t, codecs_[c]) && is_there(packed_by(c))) return k;
  }
  k.form = 0;
  return k;
}

std::optional<CopyKey> LiveCopies::form_read_beside(const Op& op, TensorId t, CopyKey k) const {
  if (op.uses.empty() || k.form == 0) return std::nullopt;
  k.chunk = 0;
  for (std::uint32_t c = 0; c < codecs_.size(); ++c) {
    k.form = packed_by(c);
    if (reads_beside(op, t, codecs_[c]) && live_.contains(k)) return k;
  }
  return std::nullopt;
}

std::optional<CodecId> LiveCopies::codec_of_packed(const CopyKey& k) const {
  return is_packed(k.form) ? std::optional(CodecId{codec_of(k.form)}) : std::nullopt;
}

void LiveCopies::convert(const Tape& tape, const Action& action, const CopyKey& packed, DeviceId device, PartId by) {
  const bool packs = action.kind == ActionKind::pack;
  CopyKey other = packed;
  other.form = packs ? 0 : form(tape, {Form::Kind::restored, action.form.codec});
  CopyKey from = packs ? other : packed, to = packs ? packed : other;
  for (; from.chunk < chunks_of(action.tensor); to.chunk = ++from.chunk) {
    const Copy* found = find(to);
    const bool is_others = found != nullptr && !found->holders.empty() && !found->is_held_by(by);
    if (!is_others) convert_chunk(action.tensor, from, to, device);
    hold(action.tensor, (*this)[to], by);
  }
}

void LiveCopies::convert_chunk(TensorId t, const CopyKey& from, const CopyKey& to, DeviceId device) {
  const bool packs = is_packed(to.form);
  const Codec& codec = codecs_[codec_of(to.form)];
  const Tensor& tensor = graph_[t];
  if (const std::optional<std::string> why = cannot_pack(codec, graph_, tensor)) {
    throw CannotLower{text_of(codec) + " " + *why};
  }
  Copy& source = (*this)[from];
  const ChunkRange range = range_of(tensor.bytes, {from.chunk, chunks_of(t)});
  const auto share = [&](Bytes whole) { return packed_share(whole, tensor.bytes, range.offset, range.length); };
  const CodecCost cost = packs ? pack_cost(codec, graph_, tensor) : unpack_cost(codec, graph_, tensor);
  NewStep step;
  step.kind = packs ? StepKind::pack : StepKind::unpack;
  step.stream = stream(device, way::compute);
  step.micro_batch = to.micro_batch;
  const Device& on = problem_.platform[device];
  step.work.seconds = packs ? pack_time(codec, cost, share(cost.moved), range.length, on)
                            : unpack_time(codec, cost, share(cost.moved), range.length, on);
  if (packs && codec.overhead != Seconds{0}) {
    const double part = static_cast<double>(range.length.count) / static_cast<double>(tensor.bytes.count);
    step.work.seconds += part * codec.overhead;
  }
  step.memory_bound = !on.memory_overlap_slowdown.empty();
  step.workspace = share(cost.workspace);
  take_waits(device, step.waits);
  step.reads = {source.buffer};
  source.add_makers(step.waits);
  EXPECTS(!contains(to));
  Copy& made = made_by(step, t, to);
  const StepId issued = add_compute(step, device);
  source.users.push_back(issued);
  made.maker = issued;
  made.users.push_back(issued);
  if (is_lossy(codec)) mark_lossy(made);
  carry_approximation(source, made);
}

void LiveCopies::compute_on_packed(std::span<const std::pair<TensorId, Copy*>> inputs, DeviceId device,
                                   NewStep& step) const {
  if (codecs_.empty()) return;
  for (const auto& [t, copy] : inputs) {
    const Buffer& buffer = builder_[copy->buffer];
    if (!buffer.is_packed()) continue;
    const std::optional<OnPacked> other = on_packed(problem_, step.op, device, t, codecs_[buffer.codec.index]);
    if (!other) continue;
    step.work.seconds = other->duration;
    step.workspace += other->workspace;
    return;  // of chunks the first one says all
  }
}

void LiveCopies::mark_lossy(Copy& copy) {
  copy.lossy = true;
  builder_.mark_lossy(copy.buffer);
}

void LiveCopies::carry_approximation(const Copy& source, Copy& target) {
  if (source.lossy && !target.lossy) mark_lossy(target);
}

void LiveCopies::carry_approximations(const Op& op, std::span<const std::pair<TensorId, Copy*>> inputs,
                                      std::span<const std::pair<TensorId, Copy*>> outputs) {
  if (codecs_.empty() || op.phase == Phase::update) return;
  const auto beside = [&](TensorId t) -> std::optional<Codec> {
    for (const auto& [in, source] : inputs) {
      const Buffer& buffer = builder_[source->buffer];
      if (in == t && buffer.is_packed()) return codecs_[buffer.codec.index];
    }
    return std::nullopt;
  };
  for (const auto& [in, source] : inputs) {
    if (!source->lossy || reads_as_exact(op, in, *source)) continue;
    const std::optional<Codec> also = op.uses.empty() ? std::nullopt : beside(in);
    for (const auto& [out, target] : outputs) {
      if (depends_on(graph_, op, in, out, also)) carry_approximation(*source, *target);
    }
  }
}

bool LiveCopies::reads_as_exact(const Op& op, TensorId t, const Copy& copy) const {
  const Buffer& buffer = builder_[copy.buffer];
  if (!buffer.is_packed()) return false;
  const Codec& codec = codecs_[buffer.codec.index];
  return op.uses.empty() ? reads_exactly(op, codec) : reads_packed(op, t, codec) || reads_beside(op, t, codec);
}

Schedule LiveCopies::finish() {
  Schedule schedule = builder_.finish();
  schedule.codecs = codecs_;
  std::set<TensorId> approximate;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.lossy && graph_[buffer.tensor].kind == TensorKind::parameter_gradient) approximate.insert(buffer.tensor);
  }
  schedule.approximate.assign(approximate.begin(), approximate.end());
  return schedule;
}

}  // namespace plimsoll
