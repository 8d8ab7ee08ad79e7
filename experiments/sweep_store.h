#pragma once
// The folder of a sweep: manifest.json says what is asked and how far it is, results.jsonl holds one record a line.
//
// A record is written at once: whatever ends the program costs at most the line that was being written. Nothing that is
// there is ever written again in place: a torn last line is cut off, and sorted results replace the others whole.
// Synced (there after a power cut) are the results when the sweep ends, and every manifest; rows are not, one by one.

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/store_disk.h"
#include "experiments/sweep_points.h"
#include "experiments/worker_pool.h"
#include "sim/io/json.h"

namespace plimsoll {

/// Records by point, as written.
using Records = std::map<std::size_t, std::string>;

/// Everything a folder holds, of all shards.
struct SweepContents {
  Json identity;  ///< what was asked: version, experiment, inputs; null where there is no manifest
  std::map<std::size_t, CaseFacts> cases;
  Records records;
};

/// Throws InputError where a file is not what a sweep writes. A last line without an end is left out.
SweepContents read_sweep(const std::filesystem::path& folder);

/// `{"point": ...}` of one line, or InputError.
Json parse_record(std::string_view line, const std::filesystem::path&, std::size_t line_number);

class SweepStore {
 public:
  /// Makes the folder and locks the shard's results. Throws InputError where the folder holds something else, or
  /// another sweep is writing here; OutputError where it cannot be written.
  SweepStore(std::filesystem::path folder, Shard, const Json& identity, StoreDisk&);

  /// Sets this shard's results aside, as results.jsonl.previous or with the next free number after it; empty: there are
  /// none.
  std::filesystem::path start_afresh();

  const SweepContents& before() const { return before_; }
  const std::filesystem::path& results() const { return results_; }

  void append(std::size_t point, std::string_view record);
  void write_manifest(const Json&);

  /// Puts this shard's results in the order of the points, in a file that replaces the old one.
  void sort();

 private:
  void open_results();

  StoreDisk& disk_;
  std::filesystem::path folder_, results_, manifest_;
  SweepContents before_;
  Records own_;
  Descriptor file_;
};

}  // namespace plimsoll
