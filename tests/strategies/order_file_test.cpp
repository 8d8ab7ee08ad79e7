// Orders from CSV files: what is written is read again, and what is wrong is said where it is.

#include "strategies/pipelining/order_file.h"

#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "strategies/pipelining/pipeline.h"
#include "tests/experiments/temporary_folder.h"
#include "tests/strategies/equal_pipelines.h"

namespace plimsoll {
namespace {

std::string refusal(std::string_view text) {
  try {
    parse_order("o.csv", text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing";
}

TEST_CASE("an order of PyTorch's convention is read: empty cells, spaces, whole and split backwards", "[pipelining]") {
  const OrderFile file = parse_order("o.csv", "0F0,0F1, ,0B0,0B1\r\n,1F0,1I0,1W0,1F1,1B1\n");
  CHECK(file.micro_batches == 2);
  CHECK(file.order.rank_of == std::vector<std::uint32_t>{0, 1});
  CHECK(file.order.weights_apart);
  CHECK(order_csv(file.order) == "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1W0,1F1,1I1,1W1\n");
  CHECK(order_csv(parse_order("o.csv", "0F0,0B0").order) == "0F0,0B0\n");
}

TEST_CASE("every pipeline's order is the same after a file, and takes the same time", "[pipelining]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "order.csv").string();
  for (const char* spec : {"gpipe", "1f1b", "eager_1f1b", "interleaved", "1f1b(backward=split)", "zb_h1", "zb_h2",
                           "zb_auto", "zb_v", "v_half", "v_half(pattern=1f1b_v)", "v_min", "hanayo", "dualpipe_v",
                           "zb_ilp(seconds=2)", "pipeline_search(moves=200)"}) {
    INFO(spec);
    const std::vector<Pass> passes = parse_spec(spec, "test");
    const Problem problem =
        problem_of(equal_stages(6, {2, 3, 1, 0.5}), gpus({.count = 3, .peer_latency = Seconds{0.5}}),
                   {.micro_batches = 7, .backward = backward_for(passes)});
    const std::optional<Bytes> any;
    const auto outcomes = passes[0].strategy->partition(problem, passes[0].options, std::span(&any, 1));
    const std::string csv = order_csv(order_of(*std::get<std::shared_ptr<const Partition>>(outcomes[0])));
    write_text_file(file, csv);
    CHECK(order_csv(read_order(file).order) == csv);
    const std::vector<Pass> again = parse_spec("order(file=" + file + ")", "test");
    const Plan made = std::get<Plan>(plan(problem, again, std::nullopt));
    CHECK(check(made.schedule, problem.graph, problem.platform).empty());
    CHECK(made.makespan == std::get<Plan>(plan(problem, passes, std::nullopt)).makespan);
  }
}

TEST_CASE("an order that cannot be is refused where it is wrong", "[pipelining]") {
  CHECK(refusal("") == "o.csv: no actions; a cell is such as 0F1");
  CHECK(refusal("0F0,0B0\n1F0,1X0\n") ==
        "o.csv:2:5: expected an action such as 0F1, 0B1, 0I1 or 0W1 (part, kind, micro-batch), found '1X0'");
  CHECK(refusal("0F0,0F,0B0\n") ==
        "o.csv:1:5: expected an action such as 0F1, 0B1, 0I1 or 0W1 (part, kind, micro-batch), found '0F'");
  CHECK(refusal("0F0,0F0,0B0\n") == "o.csv:1:5: 0F0: a second time");
  CHECK(refusal("0B0,0F0\n") == "o.csv:1:1: 0B0: before 0F0");
  CHECK(refusal("0F0,0W0,0I0\n") == "o.csv:1:5: 0W0: before 0I0");
  CHECK(refusal("0F0,0I0\n") == "o.csv: no 0W0");
  CHECK(refusal("0F0,0B0,0F1\n") == "o.csv: no 0B1");
  CHECK(refusal("0F0,0B0\n0F1,0B1\n").starts_with("o.csv:2:1: 0F1: part 0 is on rank 0 already"));
  CHECK(refusal("0F0,0B0\n2F0,2B0\n") == "o.csv: no action of part 1, and one of part 2");
  CHECK(refusal("4096F0,4096B0\n").starts_with("o.csv:1:1: 4096F0: at most 4096 parts and 1000000 micro-batches"));
}

TEST_CASE("an order that waits in a circle is refused with two of its parts", "[pipelining]") {
  CHECK(refusal("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n") ==
        "o.csv: ranks wait in a circle: 0B0 of part 0 on rank 0 waits for rank 1, whose next is 1F1 of part 1");
}

TEST_CASE("an order is refused where the model, the platform or the micro-batches are others", "[pipelining]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "order.csv").string(), spec = "order(file=" + file + ")";
  write_text_file(file, "0F0,0B0\n1F0,1B0\n");
  CHECK_THROWS_WITH(run_of(spec, 1, 2, 1, {}), "order: '" + file + "' has 2 ranks, and platform 'test' has 1 device");
  CHECK_THROWS_WITH(run_of(spec, 2, 1, 1, {}),
                    "order: '" + file + "' has 2 parts of at least one stage each, and 'equal' has 1 stages");
  CHECK_THROWS_WITH(run_of(spec, 2, 2, 2, {}),
                    "order: '" + file + "' is for 1 micro-batches, and --micro-batches is 2");
  CHECK_THROWS_WITH(run_of("order", 2, 2, 1, {}), "order: file=... names the order, a CSV file");
  CHECK(run_of(spec, 2, 2, 1, {}).makespan == Seconds{6});
}

}  // namespace
}  // namespace plimsoll
