#pragma once
// Options of strategies: of each strategy a plain struct, whose initialisers are the defaults, and a table of rows
// bound to its members. What is read, refused, shown as help and completed comes from the table; strategies read
// members.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "sim/core/expects.h"
#include "sim/core/names.h"
#include "sim/io/quantity.h"

namespace plimsoll {

/// A row of a table: what an option is called, what it may be and which member has it.
struct OptionInfo {
  std::string_view name;
  double least = 0, most = 0;      ///< of numbers
  std::string_view words = {};     ///< of a choice: its values' names in their order; of whole numbers: those allowed
  std::string_view none = "auto";  ///< of an std::optional: what leaves it without a value
  std::string_view values = {};    ///< what is allowed, in words, where the above does not say it
  std::string_view help = {};
  bool (*allowed)(std::string_view) = nullptr;  ///< of texts and whole numbers; null: any

  // Of the member, by option_of and options_of.
  bool (*read)(const OptionInfo&, std::string_view, void* owner) = nullptr;  ///< false: it may not be that
  std::string (*write)(const OptionInfo&, const void* owner) = nullptr;
  std::string (*describe)(const OptionInfo&) = nullptr;
  void* (*to_owner)(void* whole) = nullptr;  ///< to the struct of the member, within the strategy's
  const void* owner = nullptr;               ///< the type of that struct

  /// What is allowed, in words, for help and messages.
  std::string values_text() const { return values.empty() ? describe(*this) : std::string(values); }
};

/// A type of options: how one with defaults is made and one is copied. Each type has one.
struct OptionsType {
  std::shared_ptr<void> (*fresh)();
  std::shared_ptr<void> (*copy)(const void*);
};

template <class T>
inline constexpr OptionsType options_type{
    [] { return std::shared_ptr<void>(std::make_shared<T>()); },
    [](const void* from) { return std::shared_ptr<void>(std::make_shared<T>(*static_cast<const T*>(from))); }};

/// Of strategies that have none.
struct NoOptions {};

/// The table of a strategy.
class OptionSet {
 public:
  constexpr OptionSet() = default;
  constexpr OptionSet(std::span<const OptionInfo> rows, const OptionsType& type) : rows_(rows), type_(&type) {}

  constexpr auto begin() const { return rows_.begin(); }
  constexpr auto end() const { return rows_.end(); }
  constexpr bool empty() const { return rows_.empty(); }
  const OptionInfo* find(std::string_view name) const;
  const OptionsType& type() const { return *type_; }
  std::string default_text(const OptionInfo&) const;
  bool allows(const OptionInfo&, std::string_view text) const;

 private:
  std::span<const OptionInfo> rows_;
  const OptionsType* type_ = &options_type<NoOptions>;
};

/// The options of one pass.
class Options {
 public:
  /// What is not given has its default; every value is allowed.
  explicit Options(const OptionSet& known, const std::map<std::string, std::string, std::less<>>& given = {});

  std::string text(const OptionInfo& row) const { return row.write(row, row.to_owner(value_.get())); }

  /// The part of them that is a T, as what several strategies share is; null: they have no such part.
  template <class T>
  const T* get_if() const {
    return static_cast<const T*>(part(&options_type<T>));
  }
  template <class T>
  const T& as() const {
    const T* found = get_if<T>();
    EXPECTS(found != nullptr);
    return *found;
  }

  /// The same to be changed, which changes no copy of these options.
  template <class T>
  T& change() {
    value_ = known_.type().copy(value_.get());
    return const_cast<T&>(as<T>());
  }

 private:
  const void* part(const void* type) const;

  OptionSet known_;
  std::shared_ptr<void> value_;
};

namespace option {

bool read(const OptionInfo&, std::string_view, std::string&);
bool read(const OptionInfo&, std::string_view, double&);
bool read(const OptionInfo&, std::string_view, bool&);
bool read(const OptionInfo&, std::string_view, Bytes&);
std::optional<std::int64_t> whole_number(const OptionInfo&, std::string_view);
std::optional<std::size_t> place_in_words(const OptionInfo&, std::string_view);

std::string write(const OptionInfo&, const std::string&);
std::string write(const OptionInfo&, double);
std::string write(const OptionInfo&, bool);
std::string write(const OptionInfo&, Bytes);
std::string write(const OptionInfo&, std::int64_t);
std::string_view word_at(const OptionInfo&, std::size_t);

std::string describe_words(const OptionInfo&);
std::string describe_number(const OptionInfo&, std::string_view kind);

template <class T>
concept Named = requires {
  Names<T>::all;
};
template <class T>
concept Whole = std::integral<T> && !std::same_as<T, bool>;
template <class T>
concept Choice = std::is_enum_v<T>;

/// How a member of type T is read, written and described.
template <class T>
struct Value {
  static bool read(const OptionInfo& row, std::string_view text, T& into) { return option::read(row, text, into); }
  static std::string write(const OptionInfo& row, const T& value) { return option::write(row, value); }
  static std::string describe(const OptionInfo& row) {
    if constexpr (std::same_as<T, double>)
      return describe_number(row, "a number");
    else if constexpr (std::same_as<T, Bytes>)
      return "a size, such as 25MB";
    else
      return describe_words(row);
  }
};

template <Whole T>
struct Value<T> {
  static bool read(const OptionInfo& row, std::string_view text, T& into) {
    const std::optional<std::int64_t> value = whole_number(row, text);
    if (value) into = static_cast<T>(*value);
    return value.has_value();
  }
  static std::string write(const OptionInfo&, T value) { return std::to_string(value); }
  static std::string describe(const OptionInfo& row) {
    return row.words.empty() ? describe_number(row, "a whole number") : describe_words(row);
  }
};

template <Choice T>
struct Value<T> {
  static bool read(const OptionInfo& row, std::string_view text, T& into) {
    const std::optional<std::size_t> place = place_in_words(row, text);
    if (place) into = static_cast<T>(*place);
    return place.has_value();
  }
  static std::string write(const OptionInfo& row, T value) {
    return std::string(word_at(row, static_cast<std::size_t>(value)));
  }
  static std::string describe(const OptionInfo& row) { return describe_words(row); }
};

template <Choice T>
requires Named<T>
struct Value<T> {
  static bool read(const OptionInfo&, std::string_view text, T& into) {
    const std::optional<T> named = from_name<T>(text);
    if (named) into = *named;
    return named.has_value();
  }
  static std::string write(const OptionInfo&, T value) { return std::string(written(value)); }
  static std::string describe(const OptionInfo& row) { return describe_words(row); }
};

template <class T>
struct Value<std::optional<T>> {
  static bool read(const OptionInfo& row, std::string_view text, std::optional<T>& into) {
    into.reset();
    if (text == row.none) return true;
    T value{};
    const bool is_read = Value<T>::read(row, text, value);
    if (is_read) into = value;
    return is_read;
  }
  static std::string write(const OptionInfo& row, const std::optional<T>& value) {
    return value ? Value<T>::write(row, *value) : std::string(row.none);
  }
  static std::string describe(const OptionInfo& row) {
    return std::string(row.none) + " or " + Value<T>::describe(row);
  }
};

template <class Member>
struct MemberOf;
template <class T, class Owner>
struct MemberOf<T Owner::*> {
  using Type = T;
  using Struct = Owner;
};

}  // namespace option

/// A row that knows the struct of its member.
template <class Owner>
struct BoundOption : OptionInfo {};

/// `option_of<&RotorOptions::slots>({.name = "slots", ...})`.
template <auto member>
constexpr auto option_of(const OptionInfo& row) {
  using Owner = typename option::MemberOf<decltype(member)>::Struct;
  using Value = option::Value<typename option::MemberOf<decltype(member)>::Type>;
  BoundOption<Owner> bound{row};
  bound.read = [](const OptionInfo& of, std::string_view text, void* owner) {
    return Value::read(of, text, static_cast<Owner*>(owner)->*member);
  };
  bound.write = [](const OptionInfo& of, const void* owner) {
    return Value::write(of, static_cast<const Owner*>(owner)->*member);
  };
  bound.describe = &Value::describe;
  bound.owner = &options_type<Owner>;
  return bound;
}

/// The table of a struct of options.
template <class Struct, std::size_t count>
struct OptionTable {
  std::array<OptionInfo, count> rows;

  constexpr operator OptionSet() const { return {rows, options_type<Struct>}; }
};

/// The rows may be those of structs that `Struct` is made of.
template <class Struct, class... Owners>
requires(std::derived_from<Struct, Owners>&&...) constexpr OptionTable<Struct, sizeof...(Owners)> options_of(
    const BoundOption<Owners>&... rows) {
  const auto within = []<class Owner>(const BoundOption<Owner>& row) {
    OptionInfo bound = row;
    bound.to_owner = [](void* whole) -> void* { return static_cast<Owner*>(static_cast<Struct*>(whole)); };
    return bound;
  };
  return {{within(rows)...}};
}

namespace option {

template <class Function>
struct Erased;
/// Of a problem or a part of one, and the options.
template <class Result, class Of, class Struct, class... More>
struct Erased<Result (*)(const Of&, const Struct&, More...)> {
  template <auto function>
  static Result call(const Of& of, const Options& options, More... more) {
    return function(of, options.as<Struct>(), more...);
  }
};
/// Of the options alone.
template <class Result, class Struct, class... More>
struct Erased<Result (*)(const Struct&, More...)> {
  template <auto function>
  static Result call(const Options& options, More... more) {
    return function(options.as<Struct>(), more...);
  }
};

}  // namespace option

/// A function of a strategy, which reads its own struct of options, as one that can be asked for any strategy.
template <auto function>
inline constexpr auto by_options = &option::Erased<decltype(function)>::template call<function>;

}  // namespace plimsoll
