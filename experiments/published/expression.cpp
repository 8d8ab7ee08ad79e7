#include "experiments/published/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

namespace plimsoll {
namespace {

using ExpressionIs = Expression::Is;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || c == '_';
}

constexpr std::pair<std::string_view, ExpressionIs> aggregate_functions[] = {
    {"mean", ExpressionIs::mean}, {"least", ExpressionIs::least}, {"largest", ExpressionIs::largest}};

/// From left to right; after the first complaint all that is read is nothing.
class ExpressionReader {
 public:
  explicit ExpressionReader(std::string_view text) : text_(text) {}

  Parsed<Expression> whole() {
    Parsed<Expression> read{comparison(), ""};
    if (at_ < text_.size()) complain("expected an operator");
    read.complaint = complaint_;
    return read;
  }

 private:
  void complain(std::string_view what) {
    if (!complaint_.empty()) return;
    const std::string found = at_ < text_.size() ? fmt::format("'{}'", text_.substr(at_)) : "the end";
    complaint_ = fmt::format("{} in column {}, found {}", what, at_ + 1, found);
    at_ = text_.size();
  }

  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  bool takes(std::string_view word) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Expression comparison() {
    Expression left = sum();
    if (!takes("<=")) return left;
    return {.is = ExpressionIs::at_most, .name = {}, .of = {std::move(left), sum()}};
  }

  Expression sum() {
    Expression left = product();
    for (;;) {
      const ExpressionIs is = takes("+")   ? ExpressionIs::add
                              : takes("-") ? ExpressionIs::subtract
                                           : ExpressionIs::number;
      if (is == ExpressionIs::number) return left;
      Expression right = product();
      left = {.is = is, .name = {}, .of = {std::move(left), std::move(right)}};
    }
  }

  Expression product() {
    Expression left = factor();
    for (;;) {
      const ExpressionIs is = takes("*")   ? ExpressionIs::multiply
                              : takes("/") ? ExpressionIs::divide
                                           : ExpressionIs::number;
      if (is == ExpressionIs::number) return left;
      Expression right = factor();
      left = {.is = is, .name = {}, .of = {std::move(left), std::move(right)}};
    }
  }

  Expression factor() {
    if (takes("-")) return {.is = ExpressionIs::negative, .name = {}, .of = {factor()}};
    if (takes("(")) {
      Expression inner = comparison();
      if (!takes(")")) complain("expected ')'");
      return inner;
    }
    skip_spaces();
    if (at_ < text_.size() && is_digit(text_[at_])) return written_number();
    if (at_ < text_.size() && is_letter(text_[at_])) return named();
    complain("expected a number, a field or '('");
    return {};
  }

  Expression written_number() {
    Expression read;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), read.number);
    if (error != std::errc{} || !std::isfinite(read.number)) complain("expected a number");
    if (complaint_.empty()) at_ += static_cast<std::size_t>(end - begin);
    return read;
  }

  std::string word() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || (at_ > begin && is_digit(text_[at_])))) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  Expression named() {
    std::string first = word();
    if (takes("(")) return aggregate(first);
    Expression read{.is = ExpressionIs::name, .name = {}, .of = {}};
    if (!takes(".")) {
      read.name.field = std::move(first);
      return read;
    }
    read.name = {.point = std::move(first), .field = word()};
    while (takes(".")) read.name.field += "." + word();
    if (read.name.field.empty() || read.name.field.back() == '.') complain("expected a field");
    return read;
  }

  Expression aggregate(const std::string& function) {
    const auto* const found =
        std::ranges::find(aggregate_functions, function, &std::pair<std::string_view, ExpressionIs>::first);
    if (found == std::end(aggregate_functions)) {
      complain(fmt::format("'{}' is unknown; expected mean, least or largest before '('", function));
      return {};
    }
    Expression read{.is = found->second, .name = {}, .of = {}};
    read.of.push_back(comparison());
    if (takes(",")) read.of.push_back(comparison());
    if (!takes(")")) complain("expected ')'");
    return read;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string complaint_;
};

void gather_names(const Expression& of, std::vector<NamedNumber>& names) {
  if (of.is == ExpressionIs::name) names.push_back(of.name);
  for (const Expression& each : of.of) gather_names(each, names);
}

double applied(ExpressionIs is, double left, double right) {
  switch (is) {
    case ExpressionIs::add:
      return left + right;
    case ExpressionIs::subtract:
      return left - right;
    case ExpressionIs::multiply:
      return left * right;
    case ExpressionIs::divide:
      return left / right;
    default:
      return left <= right ? 1 : 0;
  }
}

std::optional<double> value_at(const Expression& of, const NumberAt& numbers, std::size_t budgets,
                               std::optional<std::size_t> budget);

/// Over the budgets at which there is a number and the condition holds.
std::optional<double> over_budgets(const Expression& of, const NumberAt& numbers, std::size_t budgets) {
  std::vector<double> found;
  for (std::size_t b = 0; b < budgets; ++b) {
    const std::optional<double> number = value_at(of.of.front(), numbers, budgets, b);
    if (!number) continue;
    if (of.of.size() > 1 && value_at(of.of.back(), numbers, budgets, b).value_or(0) == 0) continue;
    found.push_back(*number);
  }
  if (found.empty()) return std::nullopt;
  if (of.is == ExpressionIs::least) return *std::ranges::min_element(found);
  if (of.is == ExpressionIs::largest) return *std::ranges::max_element(found);
  double sum = 0;
  for (const double each : found) sum += each;
  return sum / static_cast<double>(found.size());
}

std::optional<double> value_at(const Expression& of, const NumberAt& numbers, std::size_t budgets,
                               std::optional<std::size_t> budget) {
  if (of.is == ExpressionIs::number) return of.number;
  if (of.is == ExpressionIs::name) return numbers(of.name, budget);
  if (of.is == ExpressionIs::mean || of.is == ExpressionIs::least || of.is == ExpressionIs::largest)
    return over_budgets(of, numbers, budgets);
  const std::optional<double> left = value_at(of.of.front(), numbers, budgets, budget);
  if (!left) return std::nullopt;
  if (of.is == ExpressionIs::negative) return -*left;
  const std::optional<double> right = value_at(of.of.back(), numbers, budgets, budget);
  if (!right) return std::nullopt;
  const double made = applied(of.is, *left, *right);
  return std::isfinite(made) ? std::optional(made) : std::nullopt;
}

}  // namespace

Parsed<Expression> parse_expression(std::string_view text) {
  constexpr std::size_t most = 500;  // each opening parenthesis is a level of the reader
  if (text.size() > most) return {{}, fmt::format("expected at most {} characters, found {}", most, text.size())};
  return ExpressionReader(text).whole();
}

std::vector<NamedNumber> names_in(const Expression& expression) {
  std::vector<NamedNumber> names;
  gather_names(expression, names);
  return names;
}

std::optional<double> value_of(const Expression& expression, const NumberAt& numbers, std::size_t budgets) {
  return value_at(expression, numbers, budgets, std::nullopt);
}

}  // namespace plimsoll
