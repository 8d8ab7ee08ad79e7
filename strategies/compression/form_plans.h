#pragma once
// Which saved values wait in how many bits and which are made again, so that memory stays below a level and the error
// of all gradients below a bound, at little time.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "sim/codec/predicted_error.h"
#include "sim/core/platform.h"
#include "strategies/api/front.h"
#include "strategies/compression/packing.h"
#include "strategies/models/chain_sequence.h"
#include "strategies/models/op_model.h"
#include "strategies/models/recompute_order.h"

namespace plimsoll {

/// One way to keep a saved value.
struct KeptForm {
  std::optional<Codec> codec = {};  ///< of all its uses but a ReLU's own; nothing: as it is
  bool signs = false;               ///< a ReLU's own use reads a mask
  bool again = false;               ///< not at all: it is made anew for its first use
  Seconds time = {};                ///< of packing and unpacking, or of what runs again while all else is kept
  double square = 0;                ///< what it adds to the squared error of all gradients
};

/// What a value that is kept in another form frees.
struct FreedRange {
  std::uint32_t begin = 0, end = 0;  ///< positions [begin, end)
  Bytes bytes;
};

class KeptForms {
 public:
  /// With `codecs` from the mildest to the strongest.
  KeptForms(const Graph&, std::span<const SavedTensor>, std::span<const Codec> codecs, const Device&);

  /// Adds the form `again`, the last, for values that a forward may make anew. The model is that of the tape whose
  /// values these are, in which every op runs once.
  void offer_recomputation(const OffloadModel&, const OpModel&);

  struct Value {
    TensorId tensor;                             ///< stands for its storage
    std::vector<bool> takes_signs;               ///< by use
    std::vector<KeptForm> forms;                 ///< the first: as it is
    std::vector<std::vector<FreedRange>> freed;  ///< by form
  };
  std::size_t size() const { return values_.size(); }
  const Value& operator[](std::size_t i) const { return values_[i]; }

  /// The first of these forms, or the form as it is, that waits by the codec; nothing: by signs at most.
  std::uint32_t form_of(std::size_t i, const std::optional<Codec>&) const;

  /// The first saved value in the tensor's storage.
  std::optional<std::size_t> value_of(TensorId t) const { return first_of_[graph_[t].storage.index]; }

  /// For packed_tape; `forms`: which one, by saved value. Refers to this.
  CodecChoice choice(std::vector<std::uint32_t> forms) const;

  /// The same for another tape of the graph, in which values are made anew: what has no forms here stays as it is.
  CodecChoice choice_elsewhere(std::vector<std::uint32_t> forms) const;

 private:
  std::optional<Codec> codec_of(const KeptForm&, const SavedUse&) const;
  static std::vector<FreedRange> freed_by(const KeptForm&, const Value&, const SavedTensor&, const Graph&);

  const Graph& graph_;
  std::span<const SavedTensor> saved_;
  std::vector<Value> values_;
  std::vector<std::optional<std::size_t>> first_of_;  // by storage
};

/// Forms by saved value, for as many levels of memory from all that is wanted down to the least that is found with a
/// squared error of all gradients within the bound. Wherever memory is above the level, the value there goes on to a
/// later form that costs the least for what it frees, in seconds and, at `price` seconds for the whole squared error,
/// in error. Then every value, the slowest first, goes back to the first form that is no slower and with which all
/// still fits.
/// Time: levels x values x log positions, and the square of the values.
std::vector<std::vector<std::uint32_t>> forms_of_levels(const KeptForms&, const OffloadModel&, std::uint32_t levels,
                                                        double largest_square, double price);

// Plans in which each saved value waits as it is, packed, or not at all, and is made again: what compress_plan tries.

/// Makes tapes, has the event engine run them, and keeps those whose predicted error is within a bound, which may rise.
class FormPlans {
 public:
  /// Values are those of the model's tape. `ops`: of plain training, if that is its tape and values may be made again;
  /// else null. No bound is above `largest_error`. Refers to all of them.
  FormPlans(const PartTask&, const OffloadModel&, std::span<const SavedTensor>, const KeptForms&, const OpModel* ops,
            double largest_error);

  /// From now on; 0 at first.
  void allow(double error);

  /// By saved value which of its forms. Does nothing if that has been tried.
  void add(const std::vector<std::uint32_t>& forms);

  /// On a tape of runs and drops that makes values anew.
  void add(const Tape&, const std::vector<std::uint32_t>& forms);

  /// Changes the form of one value of one of the plans that no other beats in both time and memory, and so on from
  /// there, as often as `trials`.
  void improve(std::size_t trials);

  const Front& pool() const& { return pool_; }  ///< within the bound
  Front pool() && { return std::move(pool_); }

 private:
  struct Measured {
    Bytes peak;
    Seconds makespan;
    double error = 0;
  };
  using Tried = std::map<std::vector<std::uint32_t>, std::optional<Measured>>;

  std::optional<Tape> tape_again(const std::vector<std::uint32_t>& forms) const;
  std::optional<Measured> measure(Tape);
  std::vector<std::vector<std::uint32_t>> front() const;

  const PartTask& task_;
  const OffloadModel& model_;
  std::span<const SavedTensor> saved_;
  const KeptForms& kept_forms_;
  const OpModel* ops_;
  double largest_error_, error_ = 0;                 // of any bound, and the bound
  std::map<std::uint32_t, std::uint32_t> value_in_;  // by storage of the graph: of values that may be made again
  Evicted dies_;                                     // by value: in the forward
  Tried tried_;                                      // by forms; unset: no plan, or too great an error for any bound
  Front pool_;
  std::vector<std::pair<double, PlannedTape>> later_;  // with errors that a later bound may allow
};

// Codecs and recomputation of a chain's stages chosen together, by rotor's recursion over (first stage, last stage,
// memory) in which a stage may save in several ways (rotor/block_table.h). A way is a form for each value that the
// stage's backward reads and nobody's but its own and the one before it. With m bytes for everything but x_i:
//   O(i, l, m) = min( min_w time_w + price square_w + O(i+1, l, m - kept_w)             stage i saves in way w
//                     min_j nograd_i..j-1 + O(j, l, m - x_j) + O(i, j-1, m) )           it runs again
// `price` seconds for the whole squared error of all gradients is the multiplier of the bound on it.
// Source: the recursion is that of Beaumont et al., "Optimal checkpointing for heterogeneous chains", 2019, with the
// options of Zhao et al., "Rockmate", ICML 2023; packed forms as options, and the price, are our own.

struct PackedStages {
  ChainSequence sequence;
  std::vector<std::uint32_t> forms;  ///< by saved value
};

struct StageEffort {
  std::int64_t cells = 40'000'000;  ///< steps of the recursion for a price, about; decides the number of slots
  std::size_t ways = 12;            ///< of a stage, at most
  std::size_t plans = 24;           ///< for each price, at most
  bool recomputes = true;           ///< else every stage saves when it first runs
};

/// Plans of a chain on one device for each price. The model, the values and their forms are those of plain training.
/// Sizes are rounded up to slots, of which there are 30 to 500; packing and unpacking are taken to need the largest
/// packed form of the stage beside all else. Of more ways than `ways` those that save the least and the most stay, and
/// some between.
std::vector<PackedStages> stage_plans(const PartTask&, const OffloadModel&, std::span<const SavedTensor>,
                                      const KeptForms&, std::span<const double> prices, const StageEffort&);

}  // namespace plimsoll
