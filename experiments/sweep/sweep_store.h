#pragma once
// The folder of a sweep: manifest.json says what is asked and how far it is, results.jsonl holds one record a line.
//
// A record is written at once: whatever ends the program costs at most the line that was being written. Nothing that is
// there is ever written again in place: a torn last line is cut off, and sorted results replace the others whole, as do
// those that get other numbers because the experiment has grown. Numbers in the file are never relied on: what a record
// answers, it says itself.
// Synced (there after a power cut) are the results when the sweep ends, and every manifest; rows are not, one by one.

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/sweep/point_numbers.h"
#include "experiments/sweep/store_disk.h"
#include "experiments/sweep/sweep_points.h"
#include "experiments/sweep/worker_pool.h"
#include "sim/io/json/json.h"

namespace plimsoll {

/// Records by point, as written.
using Records = std::map<std::size_t, std::string>;

/// A sweep's folder as one experiment, whatever shards wrote it.
struct SweepContents {
  Json identity;  ///< what was asked: version, experiment, inputs; null where there is no manifest
  std::map<std::size_t, CaseFacts> cases;
  Records records;
  std::vector<Json> failures = {};  ///< of groups that were refused, or broke, as the manifests have them
};

/// Throws InputError where a file is not what a sweep writes, or its manifests are of several experiments and none of
/// all. A last line without an end is left out.
SweepContents read_sweep(const std::filesystem::path& folder);

/// Of a strategy in a case, what has kept it from being answered; null: nothing has.
const Json* failure_of(const CaseFacts&, const Json& strategy, const std::vector<Json>& failures);

/// `refused`: the input was wrong; else `failed`.
std::string_view word_for(const Json& failure);

/// `{"point": ...}` of one line, or InputError.
Json parse_record(std::string_view line, const std::filesystem::path&, std::size_t line_number);

/// As it is written: an element of a list a line, since there are as many as cases.
std::string manifest_text(const Json& manifest);

/// A line of results, and of what it says the keys by which its point is known.
struct FoundRecord {
  std::string text;
  Json head;
};

/// What became of the records that were there when a sweep was resumed.
struct Kept {
  std::set<std::size_t> points;  ///< that need not be run again
  std::size_t of_other_builds = 0, of_other_points = 0;
  std::filesystem::path aside;  ///< where those are; empty: there are none
};

class SweepStore {
 public:
  /// Makes the folder and locks the shard's results. Throws InputError where the folder holds something else, or
  /// another sweep is writing here; OutputError where it cannot be written.
  SweepStore(std::filesystem::path folder, Shard, const Json& identity, StoreDisk&);

  /// Manifests of the same build: their facts hold for cases whose files are the same.
  std::vector<Json> manifests_that_hold() const;

  /// How many records the folder holds, of all shards.
  std::size_t found() const { return own_.size() + of_others_.size(); }

  /// Sets this shard's results aside, as results.jsonl.previous or with the next free number after it; empty: there are
  /// none.
  std::filesystem::path start_afresh();

  /// Gives the records the numbers that their points have in this experiment. This shard's records of other builds, of
  /// points that it has no more (or with another key), and that limits stopped which are others now, are set aside.
  Kept keep(const PointNumbers&, const std::function<std::string(std::size_t point)>& key_of);

  const std::filesystem::path& results() const { return results_; }

  void append(std::size_t point, std::string_view record);
  void write_manifest(const Json&);

  /// Puts this shard's results in the order of the points, in a file that replaces the old one.
  void sort();

 private:
  void open_results();
  void check_found() const;
  std::filesystem::path set_aside(const std::string& text);

  StoreDisk& disk_;
  std::filesystem::path folder_, results_, manifest_;
  Json identity_;
  std::vector<Json> manifests_;               ///< that were there
  std::vector<FoundRecord> own_, of_others_;  ///< that were there, until they are kept
  Records records_;                           ///< of this shard, by their numbers in this experiment
  Descriptor file_;
};

}  // namespace plimsoll
