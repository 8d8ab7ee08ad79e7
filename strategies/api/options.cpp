#include "strategies/api/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <vector>

namespace plimsoll {
namespace {

std::vector<std::string_view> words_of(const OptionInfo& row) {
  std::vector<std::string_view> words;
  for (std::string_view left = row.words; !left.empty();) {
    const std::size_t end = std::min(left.find(' '), left.size());
    words.push_back(left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return words;
}

template <class T>
bool is_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

/// With the largest unit that leaves a whole number.
std::string size_text(Bytes size) {
  constexpr std::array units{std::pair{std::int64_t{1'000'000'000}, "GB"}, std::pair{std::int64_t{1} << 30, "GiB"},
                             std::pair{std::int64_t{1'000'000}, "MB"},     std::pair{std::int64_t{1} << 20, "MiB"},
                             std::pair{std::int64_t{1'000}, "kB"},         std::pair{std::int64_t{1} << 10, "KiB"}};
  for (const auto& [factor, name] : units) {
    if (size.count != 0 && size.count % factor == 0) return fmt::format("{}{}", size.count / factor, name);
  }
  return fmt::format("{}B", size.count);
}

}  // namespace

namespace option {

bool read(const OptionInfo& row, std::string_view text, std::string& into) {
  if (row.allowed != nullptr && !row.allowed(text)) return false;
  into = text;
  return true;
}

bool read(const OptionInfo& row, std::string_view text, double& into) {
  return is_number(text, into) && into >= row.least && into <= row.most;
}

bool read(const OptionInfo& row, std::string_view text, bool& into) {
  const std::optional<std::size_t> place = place_in_words(row, text);
  if (place) into = *place == 1;
  return place.has_value();
}

bool read(const OptionInfo&, std::string_view text, Bytes& into) {
  const auto parsed = parse_bytes(text);
  if (parsed.fine()) into = parsed.value;
  return parsed.fine();
}

std::optional<std::int64_t> whole_number(const OptionInfo& row, std::string_view text) {
  std::int64_t value = 0;
  if (!is_number(text, value)) return std::nullopt;
  const auto number = static_cast<double>(value);
  const bool is_allowed =
      row.words.empty() ? number >= row.least && number <= row.most : place_in_words(row, text).has_value();
  return is_allowed && (row.allowed == nullptr || row.allowed(text)) ? std::optional(value) : std::nullopt;
}

std::optional<std::size_t> place_in_words(const OptionInfo& row, std::string_view text) {
  const std::vector<std::string_view> words = words_of(row);
  const auto found = std::ranges::find(words, text);
  if (found == words.end()) return std::nullopt;
  return static_cast<std::size_t>(found - words.begin());
}

std::string write(const OptionInfo&, const std::string& value) {
  return value;
}

std::string write(const OptionInfo&, double value) {
  return fmt::format("{}", value);
}

std::string write(const OptionInfo& row, bool value) {
  return std::string(word_at(row, value ? 1 : 0));
}

std::string write(const OptionInfo&, Bytes value) {
  return size_text(value);
}

std::string_view word_at(const OptionInfo& row, std::size_t place) {
  const std::vector<std::string_view> words = words_of(row);
  EXPECTS(place < words.size());
  return words[place];
}

std::string describe_words(const OptionInfo& row) {
  const std::vector<std::string_view> words = words_of(row);
  EXPECTS(!words.empty());
  if (words.size() == 1) return std::string(words.front());
  return fmt::format("{} or {}", fmt::join(words.begin(), words.end() - 1, ", "), words.back());
}

std::string describe_number(const OptionInfo& row, std::string_view kind) {
  return fmt::format("{} from {} to {}", kind, row.least, row.most);
}

}  // namespace option

const OptionInfo* OptionSet::find(std::string_view name) const {
  const auto found = std::ranges::find(rows_, name, &OptionInfo::name);
  return found == rows_.end() ? nullptr : &*found;
}

std::string OptionSet::default_text(const OptionInfo& row) const {
  return Options(*this).text(row);
}

bool OptionSet::allows(const OptionInfo& row, std::string_view text) const {
  return row.read(row, text, row.to_owner(type_->fresh().get()));
}

Options::Options(const OptionSet& known, const std::map<std::string, std::string, std::less<>>& given)
    : known_(known), value_(known.type().fresh()) {
  for (const auto& [name, text] : given) {
    const OptionInfo* row = known.find(name);
    EXPECTS(row != nullptr && row->read(*row, text, row->to_owner(value_.get())));
  }
}

const void* Options::part(const void* type) const {
  if (type == &known_.type()) return value_.get();
  for (const OptionInfo& row : known_) {
    if (row.owner == type) return row.to_owner(value_.get());
  }
  return nullptr;
}

}  // namespace plimsoll
