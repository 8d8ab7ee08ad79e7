#pragma once
// Data to train on, from a CSV file: rows of numbers with a label each, some of which may be held out.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "validate/batch.h"

namespace plimsoll {

struct LabelledRows {
  std::int64_t width = 0;     ///< numbers of a row
  std::vector<float> values;  ///< (rows, width)
  std::vector<std::int32_t> labels;

  std::int64_t count() const { return static_cast<std::int64_t>(labels.size()); }
};

struct LabelledData {
  LabelledRows trained, held_out;
};

/// A row a line, `label,v1,v2,...` with `width` numbers, its label from 0 to `classes` - 1; empty lines and lines that
/// begin with # are left out, and rows behind a line `test` are held out. Throws InputError with line and column.
LabelledData read_labelled_rows(const std::filesystem::path&, std::int64_t width, std::int64_t classes);

/// Which rows each step of training takes: all of them in a random order, as many times over as there are steps. Rows
/// that are left of an epoch and do not fill a step wait for the next one's order.
class RowOrder {
 public:
  RowOrder(std::int64_t rows, std::int64_t rows_of_step, std::uint64_t seed);

  /// Of the step, from 0.
  std::vector<std::int64_t> rows_of(std::int64_t step);
  double epochs_of(std::int64_t steps) const;  ///< that so many steps make

 private:
  void shuffle();

  std::int64_t rows_of_step_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_;
};

/// These rows in micro-batches of equal size.
Batch batch_of(const LabelledRows&, const std::vector<std::int64_t>& rows, std::uint32_t micro_batches);

}  // namespace plimsoll
