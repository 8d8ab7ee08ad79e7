#pragma once
// Results as a database of SQLite, for who asks them by SQL: a file that is made of a sweep's folder, as results.csv
// is.

#include <string>

#include "experiments/sweep/sweep_store.h"

namespace plimsoll {

/// Columns of `results` that say which record it is; the fields of tables follow.
inline constexpr const char* record_columns[] = {"point", "case", "build", "key"};

/// The bytes of a database with a table `results`, a row a point with the columns of results.csv, and a table `cases`.
/// The same contents give the same bytes.
std::string results_database(const SweepContents&);

}  // namespace plimsoll
