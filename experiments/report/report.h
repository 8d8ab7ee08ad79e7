#pragma once
// A report of a sweep: results.csv, report.html, and a figure of time against memory per case as SVG, PDF and PNG.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "experiments/merge/results_database.h"
#include "experiments/sweep/sweep_store.h"
#include "sim/io/json/json.h"

namespace plimsoll {

/// What sweeps have left in their folders, one of them or several (merge.h). Throws InputError where a record lacks
/// what reports take from it.
SweepContents read_results(const std::vector<std::filesystem::path>& folders);

/// Everything the figures and the page show; null where a point is infeasible.
Json report_data(const SweepContents&, const std::string& made_by);

/// One row a point, a column for each field of a result that is no list or object (result_fields.h), in their order.
std::string results_csv(const SweepContents&, const std::string& made_by);

/// The same of several folders that are compared, with compared_columns before them.
std::string compared_csv(std::span<const ComparedFolder>, const std::string& made_by);

/// Of the points whose records keep one, a line `point TAB timeline`, as far as a page can hold them.
std::string report_timelines(const SweepContents&);

/// A page that needs nothing but itself, made of the parts in report_page/. It leaves out the last cases where it would
/// have more than 60,000 points, and of timelines what `timelines` hold.
std::string report_html(const Json& data, std::string timelines = "");

/// Of how many cases a report has pictures unless it is asked for more: each takes a second.
inline constexpr std::size_t usual_pictures = 12;

/// Writes all of them, with the load line of the first of the folders first if it has one (shown_load.h), and returns
/// the paths. Pictures are of the first `most_pictures` cases. A folder may have a load line alone. Throws InputError
/// where `results` hold neither or the figures cannot be drawn; the table and the page are there by then.
std::vector<std::filesystem::path> write_report(const std::vector<std::filesystem::path>& results,
                                                const std::filesystem::path& folder, const std::string& made_by,
                                                std::size_t most_pictures = usual_pictures);

/// The same of folders that have been read.
std::vector<std::filesystem::path> write_report(const std::vector<std::filesystem::path>& results, SweepContents,
                                                const std::filesystem::path& folder, const std::string& made_by,
                                                std::size_t most_pictures = usual_pictures);

}  // namespace plimsoll
