#include "sim/judge/packed_forms.h"

#include "sim/core/tolerance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace plimsoll {
namespace {

std::int64_t rounded_up(std::int64_t a, std::int64_t unit) {
  return (a / unit + (a % unit == 0 ? 0 : 1)) * unit;
}

/// Of one number of a dtype that codecs take; 0 for another.
std::int64_t value_bytes(const Codec& codec, const std::string& dtype) {
  if (codec.kind == CodecKind::index) return dtype == "int64" ? 8 : dtype == "int32" ? 4 : 0;
  if (dtype.find("64") != std::string::npos || dtype == "double") return dtype.starts_with("int") ? 0 : 8;
  if (dtype == "fp32" || dtype == "tf32" || dtype == "float32" || dtype == "float") return 4;
  if (dtype == "bf16" || dtype == "fp16" || dtype == "bfloat16" || dtype == "float16" || dtype == "half") return 2;
  return dtype.starts_with("fp8") || dtype.starts_with("float8") ? 1 : 0;
}

/// Groups of values in a row, of parts of the tensor, or none.
bool sane_groups(const Codec& codec) {
  if (codec.group > 0) {
    return (std::uint64_t{codec.group} * codec.bits) % 8 == 0 && codec.parts == 0 && !codec.regrouped &&
           !codec.zero_mask;
  }
  return codec.padding == Padding::none && codec.averaged == 1 &&
         (codec.parts > 0 || (codec.group_bytes == 0 && !codec.regrouped));
}

bool is_sane(const Codec& codec) {
  const bool share = codec.keep > 0 && codec.keep <= 1;
  const bool has_product = codec.kind == CodecKind::pool || codec.kind == CodecKind::block_sparse;
  if (codec.sums != Projection::rademacher && codec.kind != CodecKind::projection) return false;
  if (!(codec.product >= 0 && codec.product <= (has_product ? 1 : 0)) || !(codec.overhead.value >= 0)) return false;
  switch (codec.kind) {
    case CodecKind::pool:
      return codec.window >= 1;
    case CodecKind::quantize:
      return codec.bits >= 1 && codec.bits <= 32 && codec.averaged >= 1 && share && sane_groups(codec);
    case CodecKind::mask:
      return codec.bits == 1 || codec.bits == 8;
    case CodecKind::block_sparse:
      return codec.block >= 1 && share;
    case CodecKind::zero_run:
    case CodecKind::compressed_rows:
    case CodecKind::rows:
    case CodecKind::projection:
      return share;
    case CodecKind::cast:  // a sign, an exponent, and a fraction
      return (codec.bits == 8 || codec.bits == 16 || codec.bits == 32) && codec.exponent >= 2 && codec.exponent <= 8 &&
             codec.exponent + 2 <= codec.bits;
    case CodecKind::index:
      return codec.bits == 4 || codec.bits == 8;
    case CodecKind::step:
      return codec.bits >= 1 && codec.bits <= 8;
  }
  return false;
}

/// What packing or unpacking moves and needs beside the two forms, in bytes, and how many kernels it is.
struct Conversion {
  std::int64_t packed = 0, kernels = 0, moved = 0, workspace = 0;
  double flops = 0;
};

/// A walk over the samples of the tensor, which adds up what each one takes.
class CodecCount {
 public:
  CodecCount(const Codec& codec, const std::vector<std::int64_t>& shape, std::int64_t each)
      : codec_(codec), shape_(shape), each_(each) {
    for (const std::int64_t d : shape) values_ *= d;
  }

  Conversion packing() const {
    Conversion made = sizes();
    const std::int64_t plain = values_ * each_;
    switch (codec_.kind) {
      case CodecKind::pool:
      case CodecKind::cast:
        made.kernels = 1;
        made.moved = plain + made.packed;
        break;
      case CodecKind::mask:
      case CodecKind::index:
      case CodecKind::step:
        made.moved = made.packed;
        break;
      case CodecKind::rows:  // norms, the choice, the rows read and written
        made.kernels = 3;
        made.workspace = 4 * rows();
        made.moved = plain + made.workspace + made.workspace + made.packed + made.packed;
        break;
      case CodecKind::projection:
        made.moved = plain + made.packed;
        if (codec_.sums == Projection::dct) {  // transformed to a copy, then the rows that are drawn are moved
          made.kernels = 2;
          made.workspace = plain;
          made.moved += made.workspace + made.packed;
          made.flops = 5.0 * static_cast<double>(values_) * std::log2(static_cast<double>(rows()));
        } else {  // each row comes into each sum
          made.kernels = 1;
          made.flops = 2.0 * static_cast<double>(kept_rows()) * static_cast<double>(values_);
        }
        break;
      case CodecKind::zero_run:  // counts what is not 0, then writes it
      case CodecKind::compressed_rows:
        made.kernels = 2;
        made.moved = plain + plain + made.packed;
        made.workspace = rounded_up(values_, 256) / 256 * 4;
        break;
      case CodecKind::block_sparse:  // norms, the choice, the blocks read and written
        made.kernels = 3;
        made.workspace = 4 * blocks();
        made.moved = plain + made.workspace + made.workspace + made.packed + made.packed;
        break;
      case CodecKind::quantize:
        if (codec_.group == 0) {
          made.kernels = 1;
          made.moved = plain + made.packed;
          if (codec_.regrouped) {  // read and written; then every part's largest and smallest value
            made.kernels += 2;
            made.moved += plain + plain + plain;
            made.workspace = plain;
          }
          if (codec_.parts > 0) {
            made.kernels += 2;
            made.moved += plain + groups_bytes_ + groups_bytes_;
          }
          if (codec_.zero_mask) {  // counted before
            made.kernels += 1;
            made.moved += plain;
            made.workspace += rounded_up(values_, 256) / 256 * 4;
          }
        } else if (codec_.averaged > 1) {  // means are written, then read for the ranges and for the numbers
          const std::int64_t of_mean = each_ < 4 ? 4 : each_;
          const std::int64_t means = rounded_up(values_, codec_.averaged) / codec_.averaged * of_mean;
          made.kernels = 4;
          made.moved = plain + 3 * means + made.packed + 2 * groups_bytes_;
          made.workspace = means;
          if (each_ < 4) {  // widened before: written and read
            ++made.kernels;
            made.moved += 4 * values_ + 4 * values_;
            made.workspace += 4 * values_;
          }
        } else {
          made.kernels = 3;
          made.moved = plain + plain + made.packed + 2 * groups_bytes_;
          if (numbers_ > values_) {
            ++made.kernels;
            made.moved += 2 * plain;
            made.workspace = numbers_ * each_;
          }
        }
        break;
    }
    return made;
  }

  Conversion unpacking() const {
    Conversion made = sizes();
    const bool scatters =
        codec_.kind == CodecKind::zero_run || codec_.kind == CodecKind::compressed_rows || codec_.zero_mask;
    made.kernels = scatters || codec_.regrouped ? 2 : 1;
    made.moved = made.packed + values_ * each_;
    if (codec_.regrouped) {  // and copied back
      made.workspace = values_ * each_;
      made.moved += 2 * made.workspace;
    }
    return made;
  }

 private:
  Conversion sizes() const {
    Conversion made;
    numbers_ = groups_bytes_ = 0;
    switch (codec_.kind) {
      case CodecKind::pool: {
        const std::size_t high = codec_.channels_last ? 1 : 2, channel = codec_.channels_last ? 3 : 1;
        std::int64_t blocks = 0;
        for (std::int64_t top = 0; top < shape_[high]; top += codec_.window) {
          for (std::int64_t left = 0; left < shape_[high + 1]; left += codec_.window) ++blocks;
        }
        made.packed = shape_[0] * shape_[channel] * blocks * each_;
        break;
      }
      case CodecKind::mask:
      case CodecKind::cast:
      case CodecKind::step:
        made.packed = rounded_up(values_ * codec_.bits, 8) / 8;
        break;
      case CodecKind::index:
        made.packed = codec_.bits == 8 ? values_ : rounded_up(values_, 2) / 2;
        break;
      case CodecKind::zero_run:
        made.packed = rounded_up(values_, 8) / 8 + reserved() * each_;
        break;
      case CodecKind::compressed_rows:
        made.packed = reserved() * each_ + reserved() + (rounded_up(values_, 256) / 256 + 1) * 4;
        break;
      case CodecKind::rows:
        made.packed = kept_rows() * shape_.back() * each_ + kept_rows() * 8;
        break;
      case CodecKind::projection:
        made.packed = kept_rows() * shape_.back() * each_ + 8;
        break;
      case CodecKind::block_sparse: {
        const auto kept = std::llround(codec_.keep * static_cast<double>(blocks()));
        made.packed = kept * codec_.block * codec_.block * each_ + kept * 4 + (block_rows() + 1) * 4;
        break;
      }
      case CodecKind::quantize: {
        const std::int64_t parts = codec_.padding == Padding::sample ? shape_[0] : 1;
        std::int64_t numbers = rounded_up(values_ / parts, codec_.averaged) / codec_.averaged;
        if (codec_.group > 0) {
          const std::int64_t whole = rounded_up(numbers, codec_.group);
          groups_bytes_ = parts * (whole / codec_.group) * codec_.group_bytes;
          if (codec_.padding != Padding::none) numbers = whole;
        }
        if (codec_.parts > 0) groups_bytes_ = std::int64_t{codec_.parts} * codec_.group_bytes;
        numbers_ = parts * numbers;
        made.packed = rounded_up((codec_.zero_mask ? reserved() : numbers_) * codec_.bits, 8) / 8 + groups_bytes_ +
                      shape_[0] * codec_.sample_bytes;
        if (codec_.zero_mask) made.packed += rounded_up(values_, 8) / 8;
        break;
      }
    }
    return made;
  }

  /// Room for values that are not 0.
  std::int64_t reserved() const {
    return static_cast<std::int64_t>(std::ceil(codec_.keep * static_cast<double>(values_)));
  }
  std::int64_t rows() const { return shape_.back() == 0 ? 0 : values_ / shape_.back(); }
  std::int64_t kept_rows() const { return std::llround(codec_.keep * static_cast<double>(rows())); }
  std::int64_t block_rows() const { return rounded_up(rows(), codec_.block) / codec_.block; }
  std::int64_t blocks() const { return block_rows() * (rounded_up(shape_.back(), codec_.block) / codec_.block); }

  const Codec& codec_;
  const std::vector<std::int64_t>& shape_;
  std::int64_t each_, values_ = 1;
  mutable std::int64_t numbers_ = 0, groups_bytes_ = 0;  // of a quantization, by sizes()
};

void judge_packed_buffer(const Schedule& schedule, const Graph& graph, Findings& findings, BufferId b) {
  const Buffer& buffer = schedule[b];
  const auto bad = [&](Rule rule, const std::string& what) {
    findings.report(rule, std::nullopt, b, findings.text(b) + " " + what);
  };
  if (buffer.codec.index >= schedule.codecs.size()) {
    return bad(Rule::malformed, "is packed by a codec that does not exist");
  }
  const Codec& codec = schedule.codecs[buffer.codec.index];
  const Tensor& tensor = graph[buffer.tensor];
  if (!is_sane(codec)) return;  // reported
  const std::string& dtype = tensor.dtype.empty() ? graph.source.dtype : tensor.dtype;
  std::int64_t values = tensor.shape.empty() ? 0 : 1;
  for (const std::int64_t d : tensor.shape) values *= d;
  const bool pools = codec.kind == CodecKind::pool;
  if (values <= 0 || value_bytes(codec, dtype) == 0 || values * value_bytes(codec, dtype) != tensor.bytes.count ||
      (pools && tensor.shape.size() != 4)) {
    return bad(Rule::malformed, "is packed, though its shape and dtype do not say how");
  }
  const std::int64_t packed = CodecCount(codec, tensor.shape, value_bytes(codec, dtype)).packing().packed;
  const auto before = [&](Bytes offset) {  // rounded down, so that ranges add up
    return static_cast<std::int64_t>(
        std::floor(static_cast<long double>(packed) * static_cast<long double>(offset.count) /
                   static_cast<long double>(tensor.bytes.count)));
  };
  const std::int64_t right = before(buffer.range_offset + buffer.range_length) - before(buffer.range_offset);
  if (buffer.bytes.count != right) {
    bad(Rule::wrong_cost, "takes " + std::to_string(buffer.bytes.count) + " B packed; its codec makes " +
                              std::to_string(right) + " B of it");
  }
  if (is_approximate(codec) && !buffer.lossy) bad(Rule::lossy, "is packed by a lossy codec, without saying so");
}

}  // namespace

bool is_approximate(const Codec& codec) {
  return codec.kind != CodecKind::zero_run && codec.kind != CodecKind::compressed_rows &&
         codec.kind != CodecKind::index;
}

bool restores_nothing(const Codec& codec) {
  return codec.kind == CodecKind::mask || codec.kind == CodecKind::index || codec.kind == CodecKind::step ||
         codec.kind == CodecKind::rows || codec.kind == CodecKind::projection;
}

void judge_codecs(const Schedule& schedule, const Graph& graph, Findings& findings) {
  for (std::size_t c = 0; c < schedule.codecs.size(); ++c) {
    if (is_sane(schedule.codecs[c])) continue;
    findings.report(Rule::malformed, std::nullopt, std::nullopt,
                    "codec " + std::to_string(c) + " has an option beyond what its kind takes");
  }
  for (std::size_t b = 0; b < schedule.buffers.size(); ++b) {
    if (schedule.buffers[b].is_packed()) judge_packed_buffer(schedule, graph, findings, id_at<BufferId>(b));
  }
  for (std::size_t a = 0; a < schedule.approximate.size(); ++a) {
    const TensorId t = schedule.approximate[a];
    const bool ascends = a == 0 || schedule.approximate[a - 1] < t;
    if (t.index < graph.tensors.size() && graph[t].kind == TensorKind::parameter_gradient && ascends) continue;
    findings.report(Rule::malformed, std::nullopt, std::nullopt,
                    "'approximate' does not list gradients of parameters, each once and ascending");
  }
}

void judge_cost_of_packing(const Walk& walk, StepId s, BufferId from, BufferId to) {
  const Step& step = walk.schedule[s];
  const Stream& stream = walk.schedule[step.stream];
  if (stream.way != way::compute) {
    walk.findings.report(
        Rule::wrong_place, s,
        walk.findings.text(s) + " packs or unpacks on another stream than one on which its device computes");
  }
  const bool packs = walk.schedule[to].is_packed();
  const Buffer& packed = walk.schedule[packs ? to : from];
  if (!packed.is_packed() || step.measured) return;
  const Tensor& tensor = walk.graph[packed.tensor];
  const Codec& codec = walk.schedule.codecs[packed.codec.index];
  const CodecCount count(codec, tensor.shape,
                         value_bytes(codec, tensor.dtype.empty() ? walk.graph.source.dtype : tensor.dtype));
  const Conversion whole = packs ? count.packing() : count.unpacking();
  const auto share = [&](std::int64_t bytes) {
    const auto before = [&](Bytes offset) {
      return std::floor(static_cast<long double>(bytes) * static_cast<long double>(offset.count) /
                        static_cast<long double>(tensor.bytes.count));
    };
    return static_cast<double>(before(packed.range_offset + packed.range_length) - before(packed.range_offset));
  };
  const Device& device = walk.platform[stream.device];
  const CodecRate* measured = rate_of(codec, device);
  const double launches = static_cast<double>(whole.kernels) * device.launch_overhead.value;
  double seconds = 0;
  if (measured != nullptr) {
    const double rate = (packs ? measured->pack : measured->unpack).value;
    seconds = static_cast<double>(packed.range_length.count) / rate + launches;
  } else if (device.memory_bandwidth) {
    const auto peak = device.peak.find(walk.graph.source.dtype);
    seconds = share(whole.moved) / device.memory_bandwidth->value;
    if (whole.flops > 0 && peak != device.peak.end()) {
      const double flops = whole.flops * share(whole.moved) / static_cast<double>(whole.moved);
      seconds = std::max(seconds, flops / peak->second.value);
    }
    seconds += launches;
  }
  if (packs) {
    seconds +=
        codec.overhead.value * static_cast<double>(packed.range_length.count) / static_cast<double>(tensor.bytes.count);
  }
  if (!agree(step.work.seconds.value, seconds)) {
    walk.findings.report(Rule::wrong_cost, s,
                         walk.findings.text(s) + " takes " + std::to_string(step.work.seconds.value) +
                             " s; by its codec it takes " + std::to_string(seconds) + " s");
  }
  const auto workspace = static_cast<std::int64_t>(share(whole.workspace));
  if (step.workspace.count != workspace) {
    walk.findings.report(Rule::wrong_cost, s,
                         walk.findings.text(s) + " has a workspace of " + std::to_string(step.workspace.count) +
                             " B; by its codec it has " + std::to_string(workspace) + " B");
  }
}

}  // namespace plimsoll
