#include "experiments/study/allocator_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <vector>

#include "sim/io/excerpt.h"
#include "sim/io/input_error.h"
#include "sim/io/one_of.h"

namespace plimsoll {
namespace {

bool takes_options(AllocatorKind kind) {
  return kind != AllocatorKind::exact && kind != AllocatorKind::planned;
}

std::string set_size(std::string_view text, Bytes& value) {
  const Parsed<Bytes> parsed = parse_bytes(text);
  if (parsed.fine()) value = parsed.value;
  return parsed.complaint;
}

std::string set_share(std::string_view text, double& value) {
  const Parsed<double> parsed = parse_number(text);
  if (parsed.fine()) value = parsed.value;
  return parsed.complaint;
}

std::optional<std::uint32_t> divisions_of(std::string_view text) {
  const Parsed<std::int64_t> parsed = parse_integer(text);
  if (!parsed.fine() || parsed.value < 1 || parsed.value > 64 || !std::has_single_bit(std::uint64_t(parsed.value))) {
    return std::nullopt;
  }
  return static_cast<std::uint32_t>(parsed.value);
}

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

/// `4`, or as PyTorch writes it `[256:1,512:2,>:8]`: MiB and divisions. What the first entry says holds below it too,
/// sizes between entries are not divided, and `>` says what holds from the last size on.
std::string set_roundup(std::string_view text, RoundupDivisions& value) {
  constexpr std::string_view expected =
      "expected a power of two from 1 to 64, or a list of MiB and such powers like [256:1,512:2,>:8]";
  const auto complaint = [&] { return fmt::format("{}, found '{}'", expected, text); };
  if (!text.starts_with('[')) {
    const std::optional<std::uint32_t> divisions = divisions_of(text);
    if (divisions) value.fill(*divisions);
    return divisions ? "" : complaint();
  }
  if (!text.ends_with(']') || text.size() < 3) return complaint();
  std::string_view rest = text.substr(1, text.size() - 2);
  std::optional<std::size_t> last;
  for (bool is_more = true; is_more;) {
    const std::size_t comma = rest.find(',');
    const std::string_view entry = trimmed(rest.substr(0, comma));
    is_more = comma != std::string_view::npos;
    if (is_more) rest.remove_prefix(comma + 1);
    const std::size_t colon = entry.find(':');
    if (colon == std::string_view::npos) return complaint();
    const std::string_view size = trimmed(entry.substr(0, colon));
    const std::optional<std::uint32_t> divisions = divisions_of(trimmed(entry.substr(colon + 1)));
    if (!divisions) return complaint();
    if (size == ">") {
      if (!last || is_more) return complaint();
      std::fill(value.begin() + static_cast<std::ptrdiff_t>(*last), value.end(), *divisions);
      continue;
    }
    const Parsed<std::int64_t> mebibytes = parse_integer(size);
    if (!mebibytes.fine() || mebibytes.value < 1 || !std::has_single_bit(std::uint64_t(mebibytes.value))) {
      return complaint();
    }
    const auto index = std::min<std::size_t>(std::bit_width(std::uint64_t(mebibytes.value)) - 1, value.size() - 1);
    if (!last) std::fill(value.begin(), value.begin() + static_cast<std::ptrdiff_t>(index), *divisions);
    value[index] = *divisions;
    last = index;
  }
  return "";
}

struct AllocatorOption {
  std::string_view name;
  bool of_stitching_only;
  std::string (*set)(std::string_view text, AllocatorChoice&);  ///< returns a complaint, or nothing
};

constexpr std::array allocator_options{
    AllocatorOption{
        "max_split", false,
        [](std::string_view text, AllocatorChoice& c) { return set_size(text, c.caching.max_split.emplace()); }},
    AllocatorOption{"roundup", false,
                    [](std::string_view text, AllocatorChoice& c) { return set_roundup(text, c.caching.roundup); }},
    AllocatorOption{"gc", false,
                    [](std::string_view text, AllocatorChoice& c) { return set_share(text, c.caching.gc_threshold); }},
    AllocatorOption{
        "fraction", false,
        [](std::string_view text, AllocatorChoice& c) { return set_share(text, c.caching.fraction.emplace()); }},
    AllocatorOption{"cublas_workspace", false,
                    [](std::string_view text, AllocatorChoice& c) -> std::string {
                      c.cublas_workspace = text == "yes";
                      return text == "yes" || text == "no" ? "" : fmt::format("expected yes or no, found '{}'", text);
                    }},
    AllocatorOption{"fragment_limit", true,
                    [](std::string_view text, AllocatorChoice& c) { return set_size(text, c.caching.fragment_limit); }},
    AllocatorOption{"defrag_level", true,
                    [](std::string_view text, AllocatorChoice& c) -> std::string {
                      c.caching.stitch_late = text == "1";
                      return text == "0" || text == "1" ? "" : fmt::format("expected 0 or 1, found '{}'", text);
                    }},
};

class AllocatorReader {
 public:
  explicit AllocatorReader(const std::string& text) : text_(text) {}

  AllocatorSpec read() {
    const std::size_t open = std::min(text_.find('('), text_.size());
    const std::string name(trimmed(std::string_view(text_).substr(0, open)));
    const std::optional<AllocatorKind> kind = from_name<AllocatorKind>(name);
    if (!kind) {
      const std::vector<std::string_view> names = names_of<AllocatorKind>();
      return failed(0, "",
                    fmt::format("expected {}, found '{}'{}", alternatives(names), name, suggestion(name, names)));
    }
    spec_.value = usual(*kind);
    spec_.value.text = text_;
    if (open == text_.size()) return spec_;
    const std::string_view text = trimmed(text_);
    const std::size_t close = static_cast<std::size_t>(text.data() - text_.data()) + text.size() - 1;
    if (text_[close] != ')' || close <= open) return failed(text_.size(), name, "expected ')' at the end");
    std::vector<std::string> given;
    for (std::size_t from = open + 1; from <= close && spec_.fine();) {
      const std::size_t to = end_of_option(from, close);
      if (from == open + 1 && trimmed(text_.substr(from, to - from)).empty() && to == close) break;  // `cuda()`
      option(name, from, to, given);
      from = to + 1;
    }
    if (!spec_.fine()) return spec_;
    const std::string trouble = trouble_with(spec_.value.caching);
    return trouble.empty() ? spec_ : failed(open, name, trouble);
  }

 private:
  AllocatorSpec& failed(std::size_t at, std::string_view key, std::string complaint) {
    spec_.at = at;
    spec_.key = key;
    spec_.complaint = std::move(complaint);
    return spec_;
  }

  /// The next comma that is in no list, or the closing bracket.
  std::size_t end_of_option(std::size_t from, std::size_t close) const {
    bool in_list = false;
    for (; from < close; ++from) {
      if (text_[from] == '[') in_list = true;
      if (text_[from] == ']') in_list = false;
      if (text_[from] == ',' && !in_list) break;
    }
    return from;
  }

  void option(const std::string& allocator, std::size_t from, std::size_t to, std::vector<std::string>& given) {
    while (from < to && std::isspace(static_cast<unsigned char>(text_[from]))) ++from;
    const std::string_view text = trimmed(std::string_view(text_).substr(from, to - from));
    const std::size_t equals = std::min(text.find('='), text.size());
    const std::string name(trimmed(text.substr(0, equals)));
    const std::string key = allocator + "." + name;
    if (!takes_options(spec_.value.kind)) {
      failed(from, allocator, fmt::format("takes no options, found '{}'", text));
      return;
    }
    std::vector<std::string_view> names;
    for (const AllocatorOption& each : allocator_options) {
      if (!each.of_stitching_only || spec_.value.kind == AllocatorKind::cuda_stitching) names.push_back(each.name);
    }
    const auto known = std::ranges::find(allocator_options, name, &AllocatorOption::name);
    if (known == allocator_options.end()) {
      failed(from, key, "unknown option" + suggestion(name, names));
    } else if (std::ranges::find(names, name) == names.end()) {
      failed(from, key, fmt::format("is an option of {}", written(AllocatorKind::cuda_stitching)));
    } else if (equals == text.size()) {
      failed(from, key, "expected '=' and a value");
    } else if (std::ranges::find(given, name) != given.end()) {
      failed(from, key, "given twice");
    } else if (std::string complaint = known->set(trimmed(text.substr(equals + 1)), spec_.value); !complaint.empty()) {
      failed(from, key, std::move(complaint));
    }
    given.push_back(name);
  }

  const std::string& text_;
  AllocatorSpec spec_;
};

}  // namespace

AllocatorSpec read_allocator(const std::string& text) {
  return AllocatorReader(text).read();
}

AllocatorChoice parse_allocator(const std::string& text, std::string_view where) {
  AllocatorSpec spec = read_allocator(text);
  if (spec.fine()) return std::move(spec.value);
  const bool is_name = spec.key.empty();
  const Position place{1, static_cast<std::uint32_t>(spec.at + 1)};
  if (is_name) throw InputError(fmt::format("{}: {}", where, spec.complaint));
  throw InputError(located(where, place, spec.key, spec.complaint), {excerpt(text, place)});
}

}  // namespace plimsoll
