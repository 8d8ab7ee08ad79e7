// Rows of a file: what is read, what is refused and where, and in which order training takes them.

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <set>
#include <string>

#include "sim/io/input_error.h"
#include "tests/experiments/temporary_folder.h"
#include "validate/labelled_rows.h"

namespace plimsoll {
namespace {

LabelledData read_rows(const std::string& text, std::int64_t width = 2, std::int64_t classes = 3) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "rows.csv";
  std::ofstream(file) << text;
  return read_labelled_rows(file, width, classes);
}

/// The message without the folder.
std::string refusal_of_rows(const std::string& text) {
  try {
    read_rows(text);
  } catch (const InputError& error) {
    std::string what = error.what();
    for (std::size_t at = what.find("/"); at != std::string::npos; at = what.find("/")) {
      const std::size_t end = what.find("rows.csv", at);
      what.erase(at, end - at);
    }
    return what;
  }
  return "";
}

TEST_CASE("rows are read with their labels, those behind a line 'test' are held out", "[training]") {
  const LabelledData data = read_rows("# two numbers\n0,1,-2.5\n\r\n 2 , 1e-1,3\r\ntest\n1,4,5\n");
  CHECK(data.trained.labels == std::vector<std::int32_t>{0, 2});
  CHECK(data.trained.values == std::vector<float>{1, -2.5F, 0.1F, 3});
  CHECK(data.held_out.labels == std::vector<std::int32_t>{1});
  CHECK(data.held_out.values == std::vector<float>{4, 5});
  CHECK(data.trained.count() == 2);
  CHECK(data.held_out.width == 2);
}

TEST_CASE("what is wrong with a row is said with its line and column", "[training]") {
  CHECK(refusal_of_rows("0,1,2\n1,x,2\n") == "rows.csv:2:3: value 1: expected a number, found 'x'");
  CHECK(refusal_of_rows("0,1,2\n1,7,1e99\n") == "rows.csv:2:5: value 2: expected a number, found '1e99'");
  CHECK(refusal_of_rows("0,1,nan\n") == "rows.csv:1:5: value 2: expected a number, found 'nan'");
  CHECK(refusal_of_rows("3,1,2\n") ==
        "rows.csv:1:1: label: expected a whole number from 0 to 2, the network's last class, found '3'");
  CHECK(refusal_of_rows("label,a,b\n")
            .starts_with(
                "rows.csv:1:1: label: expected a whole number from 0 to 2, the network's last class, found 'label'\n"));
  CHECK(refusal_of_rows("0,1\n") ==
        "rows.csv:1:1: expected a label and 2 numbers, as many as the network reads of a row, found 1");
  CHECK(refusal_of_rows("0,1,2,3\n") ==
        "rows.csv:1:1: expected a label and 2 numbers, as many as the network reads of a row, found 3");
  CHECK(refusal_of_rows("0,1,2,\n") ==
        "rows.csv:1:7: value 3: expected a number, found ''\n"
        "rows.csv:1:1: expected a label and 2 numbers, as many as the network reads of a row, found 3");
  CHECK(refusal_of_rows("0,1,2\ntest\n1,1,1\ntest\n") == "rows.csv:4:1: a second line 'test'; the first one is enough");
  CHECK(refusal_of_rows("# nothing\ntest\n1,1,1\n") == "rows.csv: has no rows to train on");
}

TEST_CASE("every epoch takes every row once, each in an order of its own", "[training]") {
  RowOrder order(10, 3, 5), same(10, 3, 5), other(10, 3, 6);
  std::vector<std::vector<std::int64_t>> epochs;
  bool differs = false;
  for (std::int64_t step = 0; step < 30; ++step) {
    const std::vector<std::int64_t> rows = order.rows_of(step);
    CHECK(rows == same.rows_of(step));
    differs = differs || rows != other.rows_of(step);
    if (step % 3 == 0) epochs.emplace_back();
    epochs.back().insert(epochs.back().end(), rows.begin(), rows.end());
  }
  CHECK(differs);
  CHECK(epochs.size() == 10);
  for (const std::vector<std::int64_t>& epoch : epochs) {
    CHECK(std::set<std::int64_t>(epoch.begin(), epoch.end()).size() == 9);
  }
  CHECK(std::set<std::vector<std::int64_t>>(epochs.begin(), epochs.end()).size() == 10);
  CHECK(order.rows_of(0) == same.rows_of(0));  // going back is no trouble
  CHECK(order.epochs_of(30) == Approx(9));
}

TEST_CASE("micro-batches have the rows in their order", "[training]") {
  const LabelledData data = read_rows("0,1,2\n1,3,4\n2,5,6\n0,7,8\n");
  const Batch batch = batch_of(data.trained, {3, 0, 2, 1}, 2);
  REQUIRE(batch.inputs.size() == 2);
  CHECK(batch.labels == std::vector<std::vector<std::int32_t>>{{0, 0}, {2, 1}});
  const auto* first = static_cast<const float*>(static_cast<const void*>(batch.inputs[0].data()));
  CHECK(std::vector<float>(first, first + 4) == std::vector<float>{7, 8, 1, 2});
}

TEST_CASE("a score by hand: losses in nats, ties go to the first class", "[training]") {
  const std::vector<float> probabilities{0.5F, 0.25F, 0.25F, 0.125F, 0.125F, 0.75F, 0.5F, 0.5F, 0};
  const std::vector<std::int32_t> labels{0, 1, 1};
  const Score score = score_of(probabilities.data(), 3, 3, labels.data());
  CHECK(score.rows == 3);
  CHECK(score.right == 1);
  CHECK(score.loss == Approx(std::log(2) + std::log(8) + std::log(2)));
}

}  // namespace
}  // namespace plimsoll
