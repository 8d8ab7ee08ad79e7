#include "validate/ranks/ranks_together.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "sim/core/op_kind.h"
#include "validate/networks/initial_values.h"
#include "validate/networks/kernel_arguments.h"

namespace plimsoll {
namespace {

using Bytestring = std::vector<std::byte>;

Bytestring share_of(const Bytestring& whole, const std::vector<RankPiece>& pieces) {
  std::int64_t size = 0;
  for (const RankPiece& piece : pieces) size = std::max(size, piece.own + piece.bytes);
  Bytestring own(static_cast<std::size_t>(size));
  for (const RankPiece& piece : pieces) std::copy_n(whole.begin() + piece.whole, piece.bytes, own.begin() + piece.own);
  return own;
}

/// Fills in what is not there yet; whether what is there is the same.
bool agrees(Bytestring& whole, std::vector<bool>& is_there, const Bytestring& own, const RankPiece& piece) {
  for (std::int64_t i = 0; i < piece.bytes; i += std::int64_t{sizeof(float)}) {
    std::byte* to = whole.data() + piece.whole + i;
    const std::byte* from = own.data() + piece.own + i;
    std::vector<bool>::reference known = is_there[static_cast<std::size_t>(piece.whole + i) / sizeof(float)];
    if (known && std::memcmp(to, from, sizeof(float)) != 0) return false;
    std::memcpy(to, from, sizeof(float));
    known = true;
  }
  return true;
}

bool is_kept(const Tensor& tensor) {
  return tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::optimizer_state;
}

}  // namespace

RanksTogether::RanksTogether(Network whole, const Graph& rank, std::vector<RankLayout> layouts, Mesh mesh)
    : whole_(std::move(whole)), layouts_(std::move(layouts)), mesh_(std::move(mesh)) {
  for (const Tensor& tensor : rank.tensors) bytes_.push_back(tensor.bytes);
}

std::vector<RankPiece> RanksTogether::pieces(TensorId t, std::uint32_t rank) const {
  return pieces_of(layouts_[t.index], mesh_, rank);
}

/// Which of the replicas the rank belongs to, and how many there are.
std::pair<std::uint32_t, std::uint32_t> RanksTogether::replica_of(std::uint32_t rank) const {
  std::uint32_t replica = 0, replicas = 1;
  for (std::size_t a = 0; a < mesh_.axes.size(); ++a) {
    if (!mesh_.axes[a].shares_micro_batches) continue;
    replica = replica * mesh_.axes[a].ranks + place_along(mesh_, a, rank);
    replicas *= mesh_.axes[a].ranks;
  }
  return {replica, replicas};
}

RankStart RanksTogether::start_of(std::uint32_t rank, std::uint32_t micro_batches, const ReplayOptions& options) const {
  RankStart made;
  const auto [replica, replicas] = replica_of(rank);
  const TensorId input = whole_.boundaries.front();
  const Batch all =
      options.batch != nullptr ? *options.batch : Batch{input_values(whole_, micro_batches * replicas), {}};
  for (std::uint32_t m = replica * micro_batches; m < (replica + 1) * micro_batches; ++m) {
    made.batch.inputs.push_back(share_of(all.inputs[m], pieces(input, rank)));
    if (!all.labels.empty()) made.batch.labels.push_back(all.labels[m]);
  }
  for (std::size_t t = 0; t < whole_.graph.tensors.size(); ++t) {
    const Tensor& tensor = whole_.graph.tensors[t];
    if (!is_kept(tensor)) continue;
    const Bytestring& whole = options.start != nullptr ? options.start->at(tensor.name) : initial_value(tensor);
    Bytestring own = share_of(whole, pieces(id_at<TensorId>(t), rank));
    own.resize(static_cast<std::size_t>(bytes_[t].count));  // the last share is filled up
    made.values[tensor.name] = std::move(own);
  }
  return made;
}

RanksTogether::Outcome RanksTogether::put_together(std::span<const Outcome> ran) const {
  std::optional<ReplayFailure> failure;  // the first that is no consequence of another's
  for (std::uint32_t rank = 0; rank < ran.size(); ++rank) {
    const auto* failed = std::get_if<ReplayFailure>(&ran[rank]);
    const bool is_consequence = failed != nullptr && failed->what.ends_with(other_rank_failed);
    if (failed != nullptr && (!failure || !is_consequence)) {
      const bool is_first = !failure || failure->what.ends_with(other_rank_failed);
      if (is_first) failure = ReplayFailure{fmt::format("rank {}: {}", rank, failed->what)};
    }
  }
  if (failure) return *failure;
  Replayed made = std::get<Replayed>(ran.front());
  made.scores.clear();
  if (const Score all = score_of_all(ran); all.rows > 0) made.scores.push_back(all);
  for (std::size_t t = 0; t < whole_.graph.tensors.size(); ++t) {
    const Tensor& tensor = whole_.graph.tensors[t];
    if (!is_kept(tensor) || !made.values.contains(tensor.name)) continue;
    Bytestring whole(static_cast<std::size_t>(tensor.bytes.count));
    std::vector<bool> is_there(whole.size() / sizeof(float), false);
    for (std::uint32_t rank = 0; rank < ran.size(); ++rank) {
      const Bytestring& own = std::get<Replayed>(ran[rank]).values.at(tensor.name);
      for (const RankPiece& piece : pieces(id_at<TensorId>(t), rank)) {
        if (!agrees(whole, is_there, own, piece)) {
          return ReplayFailure{
              fmt::format("rank {} ends with other bits of '{}' than a rank before it", rank, tensor.name)};
        }
      }
    }
    if (std::ranges::find(is_there, false) != is_there.end()) {
      return ReplayFailure{fmt::format("no rank has all of '{}'", tensor.name)};
    }
    made.values[tensor.name] = std::move(whole);
  }
  std::erase_if(made.values, [&](const auto& value) { return is_gradient(value.first); });
  return made;
}

/// Of all rows, which several ranks may have: as often, each of them.
Score RanksTogether::score_of_all(std::span<const Outcome> ran) const {
  Score sum;
  std::int64_t micro_batches = 0;
  for (std::uint32_t rank = 0; rank < ran.size(); ++rank) {
    const std::vector<Score>& own = std::get<Replayed>(ran[rank]).scores;
    for (const Score& each : own) sum += each;
    micro_batches = static_cast<std::int64_t>(own.size()) * replica_of(rank).second;
  }
  const auto loss = std::ranges::find(whole_.graph.ops, name_of(OpKind::cross_entropy), &Op::kind);
  if (sum.rows == 0 || loss == whole_.graph.ops.end()) return {};
  const std::int64_t rows = micro_batches * row_sizes(whole_.graph[loss->outputs.front()]).rows,
                     often = sum.rows / rows;
  return {sum.loss / static_cast<double>(often), sum.right / often, rows};
}

/// Which a rank may have in part only, or not summed: what counts is what updates made of them.
bool RanksTogether::is_gradient(const std::string& name) const {
  const auto found = std::ranges::find(whole_.graph.tensors, name, &Tensor::name);
  return found == whole_.graph.tensors.end() || found->kind == TensorKind::parameter_gradient;
}

std::optional<ReplayFailure> refused_on_ranks(const Problem& problem, const Schedule& schedule) {
  if (schedule.approximate.empty()) return std::nullopt;
  return ReplayFailure{
      fmt::format("the gradient of '{}' is made from approximations: ranks have parts and summands of gradients, of "
                  "which the replay measures no errors",
                  problem.graph[schedule.approximate.front()].name)};
}

}  // namespace plimsoll
