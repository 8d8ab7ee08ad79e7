// Orders from CSV files: what is written is read again, and what is wrong is said where it is.

#include "strategies/pipelining/order_file.h"

#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "strategies/pipelining/pipeline.h"
#include "tests/experiments/temporary_folder.h"
#include "tests/strategies/pipelining/equal_pipelines.h"

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
                           "zb_ilp(nodes=10)", "pipeline_search(moves=200)"}) {
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
  CHECK(
      refusal("0F0,0B0\n1F0,1X0\n") ==
      "o.csv:2:5: expected an action such as 0F1, 0B1, 0I1, 0W1, 0SEND_F1 or 1RECV_F1 (part, kind, micro-batch), found "
      "'1X0'");
  CHECK(
      refusal("0F0,0F,0B0\n") ==
      "o.csv:1:5: expected an action such as 0F1, 0B1, 0I1, 0W1, 0SEND_F1 or 1RECV_F1 (part, kind, micro-batch), found "
      "'0F'");
  CHECK(refusal("0F0,0F0,0B0\n") == "o.csv:1:5: 0F0: a second time");
  CHECK(refusal("0B0,0F0\n") == "o.csv:1:1: 0B0: before 0F0");
  CHECK(refusal("0F0,0W0,0I0\n") == "o.csv:1:5: 0W0: before 0I0");
  CHECK(refusal("0F0,0I0\n") == "o.csv: no 0W0");
  CHECK(refusal("0F0,0B0,0F1\n") == "o.csv: no 0B1");
  CHECK(refusal("0F0,0B0\n0F1,0B1\n").starts_with("o.csv:2:1: 0F1: part 0 is on rank 0 already"));
  CHECK(refusal("0F0,0B0\n2F0,2B0\n") == "o.csv: no action of part 1, and one of part 2");
  CHECK(refusal("4096F0,4096B0\n").starts_with("o.csv:1:1: 4096F0: at most 4096 parts and 1000000 micro-batches"));
}

TEST_CASE("orders of PyTorch before November 2024: B and W are the halves, BW is both", "[pipelining]") {
  const OrderFile halves = parse_order("o.csv", "0F0,0F1,0B0,0W0,0BW1\n,1F0,1B0,1F1,1W0,1BW1\n");
  CHECK(order_csv(halves.order) == "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1W0,1I1,1W1\n");
  CHECK(order_csv(parse_order("o.csv", "0F0,0BW0").order) == "0F0,0B0\n");
  CHECK(refusal("0F0,0BW0,0W0\n") == "o.csv:1:10: 0W0: a second time");
}

TEST_CASE("pairs that overlap are both, FSDP's cells are counted and left out", "[pipelining]") {
  const OrderFile file =
      parse_order("o.csv", "0UNSHARD,1UNSHARD,0F0,1F0,(0F1;1B0)OVERLAP_F_B,0B0,1F1,1B1,0B1,1RESHARD\n");
  CHECK(order_csv(file) == "0F0,1F0,0F1,1B0,0B0,1F1,1B1,0B1\n");
  CHECK(file.left_out == 3);
  CHECK(refusal("0F0,(0F1;0B0)OVERLAP_F_B,0B1,0RESHARD,0REDUCE_GRAD\n") == "nothing");
  CHECK(order_csv(parse_order("o.csv", "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n")) == "0F0,0F1,0B0,0B1\n");
  CHECK(refusal("0F0,(0F1;0X0)OVERLAP_F_B,0B1\n").ends_with("found '0X0'"));
  CHECK(refusal("0F0,(0F1;0B0)OVERLAP\n").ends_with("found '(0F1;0B0)OVERLAP'"));
}

constexpr const char* exchanged =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n";

TEST_CASE("the order of sends and receives is read, kept and written", "[pipelining]") {
  const OrderFile file = parse_order("o.csv", exchanged);
  CHECK(order_csv(file) == exchanged);
  REQUIRE(file.exchanges.size() == 2);
  CHECK(file.exchanges[1].size() == 4);
  CHECK(file.exchanges[1][1].is_of(PartId{0}, PartId{1}, 1));
  CHECK(file.exchanges[1][1].behind->piece == piece::forward);
  CHECK(parse_order("o.csv", "0F0,0B0\n1F0,1B0\n").exchanges.empty());
}

TEST_CASE("exchanges that cannot be are refused where they are wrong", "[pipelining]") {
  const auto without = [](std::string text, const std::string& cell, const std::string& other = "") {
    return text.replace(text.find(cell), cell.size(), other);
  };
  const std::string text = exchanged;
  CHECK(refusal(without(text, "1RECV_F1,")) == "o.csv: no 1RECV_F1");
  CHECK(refusal(without(text, "0SEND_F1,")) == "o.csv: no 0SEND_F1");
  CHECK(refusal(without(text, "1SEND_B0,")) == "o.csv: no 1SEND_B0");
  CHECK(refusal(without(text, "0RECV_B0,")) == "o.csv: no 0RECV_B0");
  CHECK(refusal(without(text, "0SEND_F0", "0SEND_B0")) ==
        "o.csv:1:5: 0SEND_B0: there is no such part on the other end");
  CHECK(refusal(without(text, "0SEND_F1", "0SEND_F0")) == "o.csv:1:18: 0SEND_F0: a second time");
  CHECK(refusal(without(text, "0F0,0SEND_F0", "0SEND_F0,0F0")) ==
        "o.csv:1:1: 0SEND_F0: before the value that it sends is computed");
  CHECK(refusal(without(text, "1RECV_F0,1F0", "1F0,1RECV_F0")) == "o.csv:2:5: 1RECV_F0: after the op that reads it");
  CHECK(refusal(without(text, "0SEND_F1", "1SEND_B1")) == "o.csv:1:18: 1SEND_B1: part 1 is on rank 1");
  CHECK(refusal("0F0,0SEND_F0,1F0,1B0,0B0\n") == "o.csv:1:5: 0SEND_F0: parts 0 and 1 are on one rank");
  CHECK(refusal(without(text, "0SEND_F1", "0SEND_F2")) == "o.csv:1:18: 0SEND_F2: there are 2 micro-batches");
  // What is sent waits for no receiver: neither rank is held up by what the other has not asked for yet.
  CHECK(refusal("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n") == "nothing");
  // Rank 0 sends what rank 1 asks for only behind what rank 0 has not been given.
  CHECK(refusal("0F0,0F1,0RECV_B0,0SEND_F0,0SEND_F1,0B0,0RECV_B1,0B1\n"
                "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n") ==
        "o.csv: ranks wait in a circle: 0B0 of part 0 on rank 0 waits for rank 1, whose next is 1F0 of part 1");
}

TEST_CASE("a receive that is posted early holds up the sends behind it", "[pipelining]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "order.csv").string();
  // Three parts of F = B = 10 s on three ranks, transfers of 1 s.
  const Problem problem = problem_of(equal_stages(3, {10, 10, 0, 0}), gpus({.count = 3, .peer_latency = Seconds{1}}),
                                     {.micro_batches = 1, .backward = Backward::whole});
  const auto makespan = [&](const std::string& text) {
    write_text_file(file, text);
    const Plan made = std::get<Plan>(plan(problem, parse_spec("order(file=" + file + ")", "test"), std::nullopt));
    CHECK(check(made.schedule, problem.graph, problem.platform).empty());
    return made.makespan.value;
  };
  const std::string first = "0F0,0SEND_F0,0RECV_B0,0B0\n", last = "2RECV_F0,2F0,2B0,2SEND_B0\n";
  CHECK(makespan(first + "1RECV_F0,1F0,1SEND_F0,1RECV_B0,1B0,1SEND_B0\n" + last) == Approx(64));
  // Asked for before the forward is sent on: neither can begin.
  write_text_file(file, first + "1RECV_F0,1F0,1RECV_B0,1SEND_F0,1B0,1SEND_B0\n" + last);
  CHECK_THROWS_WITH(plan(problem, parse_spec("order(file=" + file + ")", "test"), std::nullopt),
                    Catch::Contains("ranks wait in a circle"));
}

TEST_CASE("exchanges of a rank come one after the other", "[pipelining]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "order.csv").string(), spec = "order(file=" + file + ")";
  // Two parts of F = B = 10 s on two ranks, transfers of 4 s each way.
  const Problem problem = problem_of(equal_stages(2, {10, 10, 0, 0}), gpus({.count = 2, .peer_latency = Seconds{4}}),
                                     {.micro_batches = 2, .backward = Backward::whole});
  const auto made = [&](const std::string& text) {
    write_text_file(file, text);
    return std::get<Plan>(plan(problem, parse_spec(spec, "test"), std::nullopt)).makespan.value;
  };
  const std::string turns = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
  // Rank 1: F0 14..24, B0 24..34, F1 34..44, B1 44..54; rank 0: B0 38..48, B1 58..68.
  CHECK(made(turns) == Approx(68));
  // Nothing is asked for too early: as if there were no order.
  CHECK(made("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
             "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n") == Approx(68));
  // The first gradient is asked for, 34..38, before the second forward is sent, 38..42.
  CHECK(made("0F0,0SEND_F0,0F1,0RECV_B0,0SEND_F1,0B0,0RECV_B1,0B1\n"
             "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n") == Approx(76));
  // F0, 10..14, is asked for behind F1, 20..24, so that rank 1 begins at 24: 10 s later than it might.
  CHECK(made("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
             "1RECV_F1,1RECV_F0,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n") == Approx(78));
  CHECK_THROWS_WITH(plan(problem, parse_spec("order(work_conserving=yes,file=" + file + ")", "test"), std::nullopt),
                    "order: '" + file +
                        "' says when ranks send and receive, so that work_conserving=yes cannot take "
                        "turns in another order");
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
