#include "sim/io/reference_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

[[noreturn]] void refuse(std::string_view reference, std::string_view key, std::string_view what) {
  throw InputError(located(reference, {}, key, what));
}

/// `key=value`, or for the first option the value alone.
void set_option(std::string_view reference, std::span<const ReferenceOption> options, std::string_view text,
                bool is_first) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos && !is_first) refuse(reference, text, "expected key=value");
  const std::string_view key =
      equals == std::string_view::npos && is_first ? options.front().name : text.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? text : text.substr(equals + 1);
  std::vector<std::string_view> known;
  for (const ReferenceOption& option : options) {
    known.push_back(option.name);
    if (option.name != key) continue;
    const std::string complaint = option.set(value);
    if (!complaint.empty()) refuse(reference, key, complaint);
    return;
  }
  refuse(reference, key, "unknown key" + suggestion(key, std::span<const std::string_view>(known)));
}

/// What stands behind the colon, an option each.
std::vector<std::string_view> option_texts(std::string_view reference) {
  std::vector<std::string_view> texts;
  std::string_view rest = reference.substr(reference_name(reference).size());
  while (!rest.empty()) {
    rest.remove_prefix(1);
    texts.push_back(rest.substr(0, rest.find(',')));
    rest.remove_prefix(texts.back().size());
  }
  return texts;
}

bool is_of(const ReferenceNumber& number, std::string_view text, bool is_first) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) return is_first && number.may_be_unnamed;
  return text.substr(0, equals) == number.name;
}

}  // namespace

ReferenceOption whole_option(std::string_view name, std::uint32_t& value, std::int64_t least, std::int64_t most) {
  return {name,
          [&value, least, most](std::string_view text) -> std::string {
            const Parsed<std::int64_t> parsed = parse_integer(text);
            if (parsed.fine() && parsed.value >= least && parsed.value <= most) {
              value = static_cast<std::uint32_t>(parsed.value);
              return "";
            }
            return fmt::format("expected a whole number from {} to {}, found '{}'", least, most, text);
          },
          [&value] { return std::to_string(value); }, WholeRange{least, most}};
}

ReferenceOption word_option(std::string_view name, std::uint32_t& value, const std::vector<std::string_view>& words) {
  return {name,
          [&value, words](std::string_view text) -> std::string {
            const auto found = std::ranges::find(words, text);
            if (found == words.end()) return fmt::format("expected {}, found '{}'", alternatives(words), text);
            value = static_cast<std::uint32_t>(found - words.begin());
            return "";
          },
          [&value, words] { return std::string(words[value]); }};
}

std::string_view reference_name(std::string_view reference) {
  return reference.substr(0, reference.find(':'));
}

void set_reference_options(std::string_view reference, std::span<const ReferenceOption> options) {
  std::string_view rest = reference.substr(reference_name(reference).size());
  if (!rest.empty()) rest.remove_prefix(1);
  for (bool is_first = true; !rest.empty(); is_first = false) {
    const std::size_t comma = rest.find(',');
    set_option(reference, options, rest.substr(0, comma), is_first);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
}

std::vector<ReferenceNumber> numbers_in(std::string_view reference, std::span<const ReferenceOption> options) {
  std::vector<ReferenceNumber> numbers;
  for (const ReferenceOption& option : options) {
    if (!option.range) continue;
    const Parsed<std::int64_t> by_default = parse_integer(option.shown());
    numbers.push_back({std::string(option.name), by_default.fine() ? by_default.value : 0, *option.range,
                       &option == &options.front()});
  }
  set_reference_options(reference, options);
  const std::vector<std::string_view> texts = option_texts(reference);
  for (ReferenceNumber& number : numbers) {
    for (const std::string_view& text : texts) {
      if (!text.empty() && is_of(number, text, &text == &texts.front())) {
        number.value = parse_integer(text.substr(text.find('=') + 1)).value;  // the whole text where there is no '='
      }
    }
  }
  return numbers;
}

namespace {

std::string with_value(std::string_view reference, const ReferenceNumber& of, std::string_view value) {
  const std::string name(reference_name(reference));
  std::string made = name;
  const std::vector<std::string_view> texts = option_texts(reference);
  for (const std::string_view& text : texts) {
    if (text.empty() || is_of(of, text, &text == &texts.front())) continue;
    made += fmt::format("{}{}", made == name ? ":" : ",", text);
  }
  return made + fmt::format("{}{}={}", made == name ? ":" : ",", of.name, value);
}

}  // namespace

const ReferenceNumber* number_named(std::span<const ReferenceNumber> numbers, std::string_view name) {
  const auto found = std::ranges::find(numbers, name, &ReferenceNumber::name);
  return found == numbers.end() ? nullptr : &*found;
}

std::string with_option(std::string_view reference, std::string_view name, std::string_view value) {
  return with_value(reference, {.name = std::string(name)}, value);
}

std::string with_number(std::string_view reference, const ReferenceNumber& number, std::int64_t value) {
  return with_value(reference, number, std::to_string(value));
}

std::string reference_help(std::string_view name, std::span<const ReferenceOption> options) {
  std::string line(name);
  for (const ReferenceOption& option : options) {
    line += fmt::format("{}{}={}", line == name ? ":" : ",", option.name, option.shown());
  }
  return line;
}

}  // namespace plimsoll
