#pragma once
// References that make a model by rule, such as `transformer:layers=12,width=768`: a name and options with defaults.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/io/quantity.h"

namespace plimsoll {

/// What a whole number may be.
struct WholeRange {
  std::int64_t least = 1, most = 1;
};

/// One option: how it is read into the value it refers to, and what that value is now.
struct ReferenceOption {
  std::string_view name;
  std::function<std::string(std::string_view)> set;  ///< returns a complaint, or nothing
  std::function<std::string()> shown;
  std::optional<WholeRange> range = {};  ///< of a whole number
};

/// A whole number of a reference.
struct ReferenceNumber {
  std::string name;
  std::int64_t value = 0;  ///< as given, else the default; 0: whoever makes the model chooses
  WholeRange range = {};
  bool may_be_unnamed = false;  ///< the first option
};

/// A whole number from `least` to `most`.
ReferenceOption whole_option(std::string_view name, std::uint32_t& value, std::int64_t least, std::int64_t most);

/// One of a few words; the value becomes its index.
ReferenceOption word_option(std::string_view name, std::uint32_t& value, const std::vector<std::string_view>& words);

/// A quantity with its unit.
template <class Quantity, class Parse, class Show>
ReferenceOption quantity_option(std::string_view name, Quantity& value, Parse parse, Show show) {
  return {name,
          [&value, parse](std::string_view text) -> std::string {
            const auto parsed = parse(text);
            if (parsed.fine()) value = parsed.value;
            return parsed.complaint;
          },
          [&value, show] { return show(value); }};
}

/// What stands before the colon.
std::string_view reference_name(std::string_view reference);

/// Sets what stands behind the colon: `key=value,...`; the first option may be given without its name. Throws where it
/// is wrong.
void set_reference_options(std::string_view reference, std::span<const ReferenceOption> options);

/// The whole numbers among the options. Throws where the reference is wrong.
std::vector<ReferenceNumber> numbers_in(std::string_view reference, std::span<const ReferenceOption> options);

/// The one of this name; null: there is none.
const ReferenceNumber* number_named(std::span<const ReferenceNumber>, std::string_view name);

/// The reference with another value of an option; what is unnamed stays.
std::string with_option(std::string_view reference, std::string_view name, std::string_view value);

/// The reference with another value of one of its numbers.
std::string with_number(std::string_view reference, const ReferenceNumber&, std::int64_t value);

/// `name:key=default,...`
std::string reference_help(std::string_view name, std::span<const ReferenceOption> options);

}  // namespace plimsoll
