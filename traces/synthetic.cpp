#include "traces/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "sim/io/input_error.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

/// One option of a generator: how it is read and what it is now.
struct Option {
  std::string_view name;
  std::function<std::string(std::string_view)> set;  ///< returns a complaint, or nothing
  std::function<std::string()> shown;
};

Option whole(std::string_view name, std::uint32_t& value, std::int64_t least, std::int64_t most) {
  return {name,
          [&value, least, most](std::string_view text) -> std::string {
            const Parsed<std::int64_t> parsed = parse_integer(text);
            if (parsed.fine() && parsed.value >= least && parsed.value <= most) {
              value = static_cast<std::uint32_t>(parsed.value);
              return "";
            }
            return fmt::format("expected a whole number from {} to {}, found '{}'", least, most, text);
          },
          [&value] { return std::to_string(value); }};
}

template <class Quantity, class Parse, class Show>
Option quantity(std::string_view name, Quantity& value, Parse parse, Show show) {
  return {name,
          [&value, parse](std::string_view text) -> std::string {
            const auto parsed = parse(text);
            if (parsed.fine()) value = parsed.value;
            return parsed.complaint;
          },
          [&value, show] { return show(value); }};
}

/// A generator: its options and what makes the chain of them. The first option may be given without its name.
struct Generator {
  std::string_view name;
  std::vector<Option> options;
  std::function<Chain()> make;
};

constexpr std::int64_t most_stages = 1'000'000;

/// The defaults that a call may change; generators refer to them.
struct Settings {
  UniformChain uniform;
  RandomChain random;
  TransformerChain transformer;
};

std::vector<Generator> generators(Settings& s) {
  UniformChain& u = s.uniform;
  TransformerChain& t = s.transformer;
  return {{"uniform",
           {whole("stages", u.stages, 1, most_stages), quantity("forward", u.forward, parse_seconds, format_seconds),
            quantity("backward", u.backward, parse_seconds, format_seconds),
            quantity("activation", u.activation, parse_bytes, format_bytes),
            quantity("inner", u.inner, parse_bytes, format_bytes),
            quantity("parameters", u.parameters, parse_bytes, format_bytes)},
           [&u] { return uniform_chain(u); }},
          {"random",
           {whole("stages", s.random.stages, 1, most_stages),
            quantity(
                "seed", s.random.seed,
                [](std::string_view text) {
                  const Parsed<std::int64_t> parsed = parse_integer(text);
                  return Parsed<std::uint64_t>{static_cast<std::uint64_t>(parsed.value), parsed.complaint};
                },
                [](std::uint64_t seed) { return std::to_string(seed); })},
           [&s] { return random_chain(s.random); }},
          {"transformer",
           {whole("layers", t.layers, 1, 100'000), whole("width", t.width, 1, 1 << 20),
            whole("heads", t.heads, 1, 1 << 16), whole("sequence", t.sequence, 1, 1 << 20),
            whole("batch", t.batch, 1, 1 << 20), whole("vocabulary", t.vocabulary, 1, 1 << 24),
            whole("dtype_bytes", t.dtype_bytes, 2, 4), quantity("rate", t.rate, parse_flops_rate, format_flops_rate)},
           [&t] { return transformer_chain(t); }}};
}

std::string_view name_part(std::string_view reference) {
  return reference.substr(0, reference.find(':'));
}

[[noreturn]] void refuse(std::string_view reference, std::string_view key, std::string_view what) {
  throw InputError(located(reference, {}, key, what));
}

/// `key=value`, or for the first option the value alone.
void set_option(std::string_view reference, Generator& generator, std::string_view text, bool is_first) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos && !is_first) refuse(reference, text, "expected key=value");
  const std::string_view key =
      equals == std::string_view::npos && is_first ? generator.options.front().name : text.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? text : text.substr(equals + 1);
  std::vector<std::string_view> known;
  for (const Option& option : generator.options) {
    known.push_back(option.name);
    if (option.name != key) continue;
    const std::string complaint = option.set(value);
    if (!complaint.empty()) refuse(reference, key, complaint);
    return;
  }
  refuse(reference, key, "unknown key" + suggestion(key, std::span<const std::string_view>(known)));
}

}  // namespace

bool is_synthetic(std::string_view reference) {
  Settings settings;
  return std::ranges::any_of(generators(settings),
                             [&](const Generator& each) { return each.name == name_part(reference); });
}

Chain synthetic_chain(std::string_view reference) {
  Settings settings;
  for (Generator& generator : generators(settings)) {
    if (generator.name != name_part(reference)) continue;
    std::string_view rest = reference.substr(generator.name.size());
    if (!rest.empty()) rest.remove_prefix(1);
    for (bool is_first = true; !rest.empty(); is_first = false) {
      const std::size_t comma = rest.find(',');
      set_option(reference, generator, rest.substr(0, comma), is_first);
      rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    }
    Chain chain = generator.make();
    chain.name = reference;
    return chain;
  }
  refuse(reference, "", "no such generator");
}

std::vector<std::string> synthetic_help() {
  Settings settings;
  std::vector<std::string> lines;
  for (const Generator& generator : generators(settings)) {
    std::string line(generator.name);
    for (const Option& option : generator.options) {
      line += fmt::format("{}{}={}", line == generator.name ? ":" : ",", option.name, option.shown());
    }
    lines.push_back(line);
  }
  return lines;
}

}  // namespace plimsoll
