// `plimsoll train` from outside: what it prints, that the same words give the same bytes, and what it refuses.

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

/// Which quarter of the plane a row's sum and difference lie in.
void write_quarters(const std::filesystem::path& file, int rows, int held_out) {
  std::mt19937 generator(17);
  std::normal_distribution<double> normal;
  std::ofstream out(file);
  out << "# quarters of the plane\n";
  for (int r = 0; r < rows + held_out; ++r) {
    if (r == rows) out << "test\n";
    const double a = normal(generator), b = normal(generator);
    out << (a > 0 ? 1 : 0) + (b > 0 ? 2 : 0) << ',' << a + b << ',' << a - b << ",0,1\n";
  }
}

class Quarters {
 public:
  Quarters() { write_quarters(folder_ / "rows.csv", 320, 100); }

  ProgramRun train(const std::string& words, const std::string& before = "") const {
    const std::string data = " --data " + (folder_ / "rows.csv").string();
    return plimsoll("train " + words + (words.find("--data") == std::string::npos ? data : ""), before);
  }
  nlohmann::json json(const std::string& words) const {
    const ProgramRun run = train(words + " --json");
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    nlohmann::json answer = nlohmann::json::parse(run.out);
    CHECK(answer["elapsed_s"] > 0);
    answer.erase("elapsed_s");
    answer.erase("data");
    return answer;
  }
  std::filesystem::path file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }

 private:
  TemporaryFolder folder_;
};

const std::string network_words =
    "mlp:layers=3,width=4,batch=16,classes=4,view=graph --learning-rate 0.01 --steps 300 ";

TEST_CASE("train learns, tells how it went, and the same words give the same bytes", "[program][eleventh-2]") {
  const Quarters quarters;
  const nlohmann::json exact = quarters.json(network_words + "--strategy 'lossless(nonzero=1)'");
  CHECK(exact["same_bits"] == true);
  CHECK(exact["gradient_error"].is_null());
  CHECK(exact["trained"]["accuracy"] == exact["plain"]["accuracy"]);
  CHECK(exact["trained"]["held_out_loss"] == exact["plain"]["held_out_loss"]);
  CHECK(exact["plain"]["accuracy"] > 0.85);
  CHECK(exact["plain"]["held_out_accuracy"] > 0.8);
  CHECK(exact["rows"]["trained"] == 320);
  CHECK(exact["rows"]["held_out"] == 100);
  CHECK(exact["epochs"] == 15.0);
  CHECK(exact["losses"].size() == 10);
  CHECK(exact["losses"].back()["step"] == 300);
  CHECK(exact["losses"].back()["loss"] < 0.6 * exact["losses"].front()["loss"].get<double>());

  const std::string lossy = network_words + "--strategy 'quantize(bits=2,group=8)' --every 100";
  const nlohmann::json answer = quarters.json(lossy);
  CHECK(answer == quarters.json(lossy));
  CHECK(answer != quarters.json(lossy + " --seed 1"));
  CHECK(answer["same_bits"] == false);
  CHECK(answer["losses"].size() == 3);
  CHECK(answer["plain"] == exact["plain"]);
  CHECK(answer["trained"]["accuracy"] > 0.75);
  CHECK(answer["gradient_error"]["first"]["whole"]["relative"] > 0);
  CHECK(answer["gradient_error"]["last"]["whole"]["noise"]["relative"] > 0);
  CHECK(answer["gradient_error"]["first"]["seeds"] == 8);

  const ProgramRun text = quarters.train(network_words + "--strategy 'quantize(bits=2,group=8)'");
  CHECK(text.exit_code == 0);
  for (const std::string line :
       {"300 steps of 16 rows, seed 0", "loss, nats a row", "after 300 steps, 15.0 epochs", "accuracy of held-out rows",
        "peak memory", "gradient error, last step", "are not those of plain training, bit for bit"}) {
    INFO(line);
    CHECK(text.out.find(line) != std::string::npos);
  }
}

TEST_CASE("chains and micro-batches train, too, within a budget", "[program]") {
  const Quarters quarters;
  const std::string words =
      "mlp:layers=10,width=4,batch=80,classes=4 --steps 5 --micro-batches 2 --optimizer momentum ";
  const nlohmann::json rotor = quarters.json(words + "--strategy rotor --memory '85 %'");
  CHECK(rotor["same_bits"] == true);
  CHECK(rotor["rows_per_step"] == 160);
  CHECK(rotor["trained"]["peak_bytes"] <= 0.85 * rotor["plain"]["peak_bytes"].get<double>());
}

TEST_CASE("an interrupted training tells how far it came", "[program][eleventh-6]") {
  const Quarters quarters;
  const ProgramRun run =
      quarters.train("mlp:layers=3,width=4,batch=16,classes=4,view=graph --strategy quantize --steps 10000000 --json",
                     "timeout --preserve-status -s INT 2");
  INFO(run.err);
  CHECK(run.exit_code == 130);
  const nlohmann::json answer = nlohmann::json::parse(run.out);
  CHECK(answer["steps_made"] > 0);
  CHECK(answer["steps_made"] < 10000000);
  CHECK(answer["losses"].size() == 1);
  CHECK(answer["trained"]["accuracy"] > 0);
}

TEST_CASE("what cannot be trained is refused with the reason", "[program]") {
  const Quarters quarters;
  const auto refused = [&](const std::string& words, int code = 2) {
    const ProgramRun run = quarters.train(words);
    INFO(words);
    CHECK(run.exit_code == code);
    CHECK(run.out.empty());
    return run.err;
  };
  const std::string mlp = "mlp:layers=2,width=4,batch=16,classes=4,view=graph ", plain = "--strategy store_all ";
  CHECK(refused("uniform:4 " + plain).starts_with("'uniform:4' is not a network that can run; "));
  CHECK(refused(mlp + plain + "--data nowhere.csv").starts_with("nowhere.csv: "));
  CHECK(refused(mlp + plain + "--steps 0") == "--steps: expected a whole number from 1 to 10000000, found '0'\n");
  CHECK(refused(mlp + plain + "--learning-rate -1") ==
        "--learning-rate: expected a number above 0 and up to 1000, found '-1'\n");
  CHECK(refused(mlp + plain + "--optimizer none") == "--optimizer: training needs one, found none\n");
  CHECK(refused(mlp + plain + "--optimizer adamm") ==
        "--optimizer: expected none, sgd, momentum or adam, found 'adamm'; did you mean 'adam'?\n");
  CHECK(refused("gpt:layers=1 " + plain).starts_with("network 'gpt:layers=1' reads tokens"));
  CHECK(refused("mlp:width=4,updates=sgd,view=graph " + plain) ==
        "network 'mlp:width=4,updates=sgd,view=graph': leave updates= out, --optimizer says which\n");
  const std::string wide = refused("mlp:layers=2,width=5,batch=16,classes=4 " + plain);
  CHECK(wide.find("rows.csv:2:1: expected a label and 5 numbers, as many as the network reads of a row, found 4") !=
        std::string::npos);
  CHECK(
      refused("mlp:layers=2,width=4,batch=16,classes=3 " + plain).find("label: expected a whole number from 0 to 2") !=
      std::string::npos);
  const std::string few = quarters.file("few.csv", "0,1,2,3,4\n1,1,2,3,4\n").string();
  CHECK(refused(mlp + plain + "--data " + few) ==
        few + ": has 2 rows to train on, and a step takes 16: 16 in each of 1 micro-batches\n");
  const std::string least = refused(mlp + plain + "--memory '100 B'", 1);
  CHECK(least.starts_with("infeasible: store_all within 100 B: "));
  CHECK(least.find("the smallest feasible budget is ") != std::string::npos);
  CHECK(refused(mlp + "--strategy adafactor")
            .starts_with(
                "--strategy: 'adafactor' cannot be trained on the CPU: the CPU has the first update of Adafactor "));
  // Only the values show that: the first step ends the training.
  const ProgramRun zeros =
      quarters.train("mlp:layers=3,width=4,batch=16,classes=4,view=graph --strategy 'lossless(nonzero=0.1)'");
  CHECK(zeros.exit_code == 1);
  CHECK(zeros.err.find("are not 0; zero_run(keep=0.1) reserves room for ") != std::string::npos);
}

}  // namespace
}  // namespace plimsoll
