// The law is declared, not fitted: rows fall like a power of the expert's rank (Zipf). Routers that nothing balances
// favour few experts: Shazeer et al., "Outrageously Large Neural Networks", 2017, section 4.

#include "traces/models/mixtures/expert_rows.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <random>
#include <utility>

namespace plimsoll {
namespace {

/// Shares of rows from the busiest expert on, none above all tokens.
std::vector<double> shares_of(const ExpertLoad& of) {
  std::vector<double> shares(static_cast<std::size_t>(of.experts));
  for (std::size_t i = 0; i < shares.size(); ++i) shares[i] = std::pow(static_cast<double>(i + 1), -of.skew);
  double weights = std::accumulate(shares.begin(), shares.end(), 0.0),
         rows = static_cast<double>(of.tokens) * static_cast<double>(of.top_k);
  const auto most = static_cast<double>(of.tokens);
  for (double& share : shares) {
    const double weight = std::exchange(share, std::min(most, rows * share / weights));
    rows -= share;
    weights -= weight;
  }
  return shares;
}

/// Whole numbers with the same sum: the largest remainders are rounded up.
std::vector<std::int64_t> whole_rows(const std::vector<double>& shares, std::int64_t all) {
  std::vector<std::int64_t> rows;
  for (const double share : shares) rows.push_back(static_cast<std::int64_t>(std::floor(share)));
  std::vector<std::size_t> order(shares.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto remainder = [&](std::size_t i) { return shares[i] - std::floor(shares[i]); };
  std::ranges::stable_sort(order, std::ranges::greater{}, remainder);
  const std::int64_t left = all - std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  for (std::int64_t i = 0; i < left; ++i) ++rows[order[static_cast<std::size_t>(i) % order.size()]];
  return rows;
}

}  // namespace

std::vector<std::int64_t> expert_rows(const ExpertLoad& of) {
  std::vector<std::int64_t> rows = whole_rows(shares_of(of), of.tokens * of.top_k);
  std::seed_seq seeds{of.seed, of.layer};
  std::mt19937_64 engine(seeds);
  for (std::size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[engine() % i]);
  return rows;
}

std::int64_t row_limit(const ExpertLoad& of) {
  if (of.capacity <= 0) return of.tokens;
  const double mean = static_cast<double>(of.tokens * of.top_k) / static_cast<double>(of.experts);
  return static_cast<std::int64_t>(std::ceil(mean * of.capacity));
}

std::vector<std::int64_t> computed_rows(const ExpertLoad& of) {
  const std::int64_t limit = row_limit(of);
  std::vector<std::int64_t> rows = expert_rows(of);
  for (std::int64_t& each : rows) each = of.is_padded ? limit : std::min(each, limit);
  return rows;
}

std::string computed_rows_text(const ExpertLoad& of) {
  std::string text;
  for (const std::int64_t rows : computed_rows(of)) text += (text.empty() ? "" : " ") + std::to_string(rows);
  return text;
}

}  // namespace plimsoll
