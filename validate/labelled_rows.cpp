#include "validate/labelled_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>

#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "validate/reference/chance.h"

namespace plimsoll {
namespace {

constexpr std::string_view blanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

/// The whole of a text, or nothing.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class Reader {
 public:
  Reader(std::string file, std::string_view text, std::int64_t width, std::int64_t classes)
      : complaints_(std::move(file), text), text_(text), width_(width), classes_(classes) {
    data_.trained.width = data_.held_out.width = width;
  }

  LabelledData read() && {
    std::uint32_t line = 0;
    for (std::size_t begin = 0; begin < text_.size(); ++line) {
      const std::size_t end = std::min(text_.find('\n', begin), text_.size());
      read_line(line + 1, text_.substr(begin, end - begin));
      begin = end + 1;
    }
    complaints_.throw_if_any();
    return std::move(data_);
  }

 private:
  void read_line(std::uint32_t line, std::string_view text) {
    const std::string_view words = trimmed(text);
    if (words.empty() || words.front() == '#') return;
    if (words == "test") {
      if (rows_ == &data_.held_out) complaints_.add({line, 1}, "", "a second line 'test'; the first one is enough");
      rows_ = &data_.held_out;
      return;
    }
    std::int64_t cells = 0;
    for (std::size_t begin = 0; begin <= text.size(); ++cells) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      const std::string_view cell = trimmed(text.substr(begin, end - begin));
      const auto complain = [&](std::string_view key, std::string_view what) {
        complaints_.add({line, position_of(text, begin).column}, key, what);
      };
      if (cells == 0) {
        read_label(cell, complain);
      } else {
        read_value(cell, cells, complain);
      }
      begin = end + 1;
    }
    if (cells == width_ + 1) return;
    complaints_.add({line, 1}, "",
                    fmt::format("expected a label and {} numbers, as many as the network reads of a row, found {}",
                                width_, cells - 1));
  }

  template <class Complain>
  void read_label(std::string_view cell, const Complain& complain) {
    const std::optional<std::int64_t> label = number_in<std::int64_t>(cell);
    if (!label || *label < 0 || *label >= classes_) {
      complain("label", fmt::format("expected a whole number from 0 to {}, the network's last class, found '{}'",
                                    classes_ - 1, cell));
    }
    rows_->labels.push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(label.value_or(0), 0, classes_ - 1)));
  }

  template <class Complain>
  void read_value(std::string_view cell, std::int64_t number, const Complain& complain) {
    const std::optional<float> value = number_in<float>(cell);
    if (!value || !std::isfinite(*value)) {
      complain(fmt::format("value {}", number), fmt::format("expected a number, found '{}'", cell));
    }
    rows_->values.push_back(value.value_or(0));
  }

  Complaints complaints_;
  std::string_view text_;
  std::int64_t width_, classes_;
  LabelledData data_;
  LabelledRows* rows_ = &data_.trained;
};

}  // namespace

LabelledData read_labelled_rows(const std::filesystem::path& file, std::int64_t width, std::int64_t classes) {
  const std::string text = read_text_file(file);
  LabelledData data = Reader(file.string(), text, width, classes).read();
  if (data.trained.count() == 0) throw InputError(located(file.string(), {}, "", "has no rows to train on"));
  return data;
}

RowOrder::RowOrder(std::int64_t rows, std::int64_t rows_of_step, std::uint64_t seed)
    : rows_of_step_(rows_of_step), seed_(seed), order_(static_cast<std::size_t>(rows)) {
  EXPECTS(rows_of_step > 0 && rows_of_step <= rows);
}

std::vector<std::int64_t> RowOrder::rows_of(std::int64_t step) {
  const std::int64_t steps = static_cast<std::int64_t>(order_.size()) / rows_of_step_;
  if (step / steps != epoch_) {
    epoch_ = step / steps;
    shuffle();
  }
  const auto first = order_.begin() + step % steps * rows_of_step_;
  return {first, first + rows_of_step_};
}

double RowOrder::epochs_of(std::int64_t steps) const {
  return static_cast<double>(steps * rows_of_step_) / static_cast<double>(order_.size());
}

/// Fisher and Yates'.
void RowOrder::shuffle() {
  std::iota(order_.begin(), order_.end(), 0);
  const std::uint64_t first = static_cast<std::uint64_t>(epoch_) * order_.size();
  for (std::size_t i = order_.size(); i > 1; --i) {
    const double draw = double{unit_of(seed_, first + i)} * static_cast<double>(i);
    std::swap(order_[i - 1], order_[static_cast<std::size_t>(draw)]);
  }
}

Batch batch_of(const LabelledRows& data, const std::vector<std::int64_t>& rows, std::uint32_t micro_batches) {
  EXPECTS(rows.size() % micro_batches == 0);
  const std::size_t each = rows.size() / micro_batches, width = static_cast<std::size_t>(data.width);
  Batch batch;
  for (std::size_t m = 0; m < micro_batches; ++m) {
    std::vector<std::byte>& input = batch.inputs.emplace_back(each * width * sizeof(float));
    std::vector<std::int32_t>& labels = batch.labels.emplace_back();
    for (std::size_t i = 0; i < each; ++i) {
      const auto row = static_cast<std::size_t>(rows[m * each + i]);
      std::memcpy(&input[i * width * sizeof(float)], &data.values[row * width], width * sizeof(float));
      labels.push_back(data.labels[row]);
    }
  }
  return batch;
}

}  // namespace plimsoll
