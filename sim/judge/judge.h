#pragma once
// What check() is made of: a walk over the steps in issue order that keeps what every buffer holds. One file a subject.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/core/short_list.h"
#include "sim/judge/check.h"
#include "sim/judge/happens_before.h"
#include "sim/judge/exchange.h"
#include "sim/judge/sums.h"

namespace plimsoll {

class Judge {
 public:
  Judge(const Schedule&, const Graph&, const Platform&, std::size_t limit);

  std::vector<Violation> run();

 private:
  enum class Life : std::uint8_t { unborn, live, dead };

  static constexpr BufferId none{UINT32_MAX};
  using Tensors = ShortList<TensorId, 1>;
  using Steps = ShortList<StepId, 3>;
  /// What one buffer holds while the schedule is walked.
  struct Held {
    Life life = Life::unborn;
    Tensors tensors;                      ///< valid now, of the buffer's storage
    RangedSums sums;                      ///< of a parameter gradient
    std::uint32_t version = 0;            ///< how often it was updated; of a parameter gradient: for which update it is
    Steps makers;                         ///< who filled it last
    Steps readers;                        ///< since
    CollectiveId from = no_collective;    ///< whose result it is
    bool approximate = false;             ///< not the value itself, but what a lossy codec has left of it or of others
    bool is_pooled = false;               ///< by a codec that pools, of this value
    BufferId newer = none, older = none;  ///< of the list of live ones that it is in
  };

  /// A tensor's storage of one micro-batch and replica in one memory.
  using Place = std::tuple<StorageId, std::uint32_t, std::uint32_t, MemoryId>;
  /// Who may have run a device's backward, by the workspaces of its steps so far: a caller stage by stage, or autograd
  /// in one call, which repeats nothing.
  struct Callers {
    bool by_stage = true, in_one_call = true;
    std::optional<std::uint32_t> first_micro_batch = {};  ///< whose backward comes first
  };

  /// What a buffer holds; one that is freed holds nothing that can be changed. Kept for as long as there is need, so
  /// that a schedule of many steps is judged within the caches.
  Held& held_in(BufferId b);
  Life life_of(BufferId b) const;
  void forget(BufferId b);
  /// Though it is not dead, which is reported by itself.
  bool holds_nothing(BufferId b) { return life_of(b) != Life::dead && held_in(b).tensors.empty(); }

  std::string text(StepId s) const;
  std::string text(BufferId b) const;
  void report(Rule rule, std::optional<StepId> step, std::optional<BufferId> buffer, std::string what);
  void report(Rule rule, StepId step, BufferId buffer, const std::string& what);
  void report(Rule rule, StepId step, const std::string& what);

  void prepare();

  // --- form
  bool well_formed();
  void judge_counts();
  void judge_buffers();
  void judge_streams();
  void judge_routes();
  void judge_collectives();
  bool judge_lists(StepId s);
  void judge_names(StepId s);
  void start_resident(BufferId b);
  void judge_parameters();
  void judge_header_gradients();

  // --- packed forms and approximations
  void judge_header_codecs();
  void judge_packed_buffer(BufferId b);
  void judge_packing(StepId s, BufferId from, BufferId to);
  void judge_cost_of_packing(StepId s, BufferId from, BufferId to);
  enum class Does : std::uint8_t { with_packed, with_packed_beside, without };
  Does does(const Op& op, BufferId packed) const;
  bool may_read_packed(const Op& op, BufferId b) const;
  /// What a step takes that computes a product on a packed form, where it does.
  struct ProductCost {
    std::optional<double> seconds;
    std::int64_t workspace = 0;  ///< beside the op's own
  };
  std::optional<ProductCost> product_on_packed(const Step& step) const;
  bool multiplies_pixels(const Op& op, TensorId value) const;
  bool is_served(const Step& step, const InputUse& use) const;
  void judge_approximations(StepId s, const Op& op);
  void approximated(StepId s, BufferId b);
  void judge_approximate_list();

  // --- versions: which update's value of a parameter a step reads
  void judge_header_updates();
  /// In an iteration.
  std::uint32_t updates() const;
  /// The micro-batches whose gradients one update takes.
  std::uint32_t micro_batches_of_update() const;
  std::uint32_t update_of(std::uint32_t micro_batch) const { return micro_batch / micro_batches_of_update(); }
  /// The version of a tensor that the step must read; what it is may depend on what the schedule has done before.
  std::uint32_t needed_version(StepId s, TensorId t);
  void note_updated(StepId s, BufferId b);
  bool hands_out(StepId s) const;
  void judge_staleness();
  /// By resident buffer: whether the newest version of what it holds is where it is, in this buffer or another.
  std::vector<bool> newest_at_home();

  // --- one step
  void judge(StepId s);
  bool ordered(StepId earlier, StepId current) const { return earlier == current || before_->finished(earlier); }
  bool same_collective(StepId a, StepId b) const;
  void judge_use(StepId s, BufferId b, std::string_view verb);
  void judge_result_of_collective(StepId s, BufferId b);
  void judge_after_readers(StepId s, BufferId b);
  void allocate(StepId s, BufferId b);
  void judge_free(StepId s, BufferId b);
  /// Marks a buffer as filled by a step.
  Held& fill(StepId s, BufferId b, Tensors tensors);
  /// Where its stream computes, of a copy its device's; nothing for a place that the platform does not have.
  std::optional<MemoryId> own_memory(const Step& step) const;
  /// Where the stream's way begins and ends, and its device's host; nothing for a place that the platform has not.
  struct Ends {
    std::optional<MemoryId> from, to, host;
  };
  const Ends& ends_of(const Step& step) const { return ends_[step.stream.index]; }
  bool belongs(const Buffer& buffer, const Step& step) const { return belongs(buffer, step, step.micro_batch); }
  bool belongs(const Buffer& buffer, const Step& step, std::uint32_t micro_batch) const;
  Place place_of(BufferId b) const;
  /// The first of a list of live buffers with plain values, among them all of the tensor's storage and micro-batch.
  BufferId& newest_live(TensorId, std::uint32_t micro_batch);
  void born(BufferId b);
  void died(BufferId b);
  /// Whether a buffer of the tensor's storage is live where and for what the step computes.
  bool is_live(TensorId t, const Step& step);

  // --- compute
  void judge_compute(StepId s);
  /// The network's input appears where its first reader allocates it, once in every memory.
  void load_input(StepId s, const Op& op);
  /// Of the buffers in `given_`: all of the tensor, of that micro-batch.
  void judge_input(StepId s, TensorId t, std::uint32_t micro_batch);
  /// Of slices of sequences: what it reads of those before, and who must have been there before it.
  void judge_slices(StepId s, const Op& op);
  bool step_is_update(StepId s) const;
  void judge_outputs(StepId s, const Op& op);
  void judge_filled(StepId s, const Op& op);
  void judge_views(StepId s, const Op& op);
  void fill_output(StepId s, const Op& op, BufferId b);
  std::size_t contribution(const Step& step, TensorId gradient) const;
  /// Whether a parameter gradient has every contribution.
  bool complete(BufferId b);

  // --- copies and conversions
  /// Whether a conversion changes a parameter gradient that is there: then it adds to it.
  bool adds_gradients(const Step& step) const;
  /// Of a copy or conversion: what it reads and what it fills.
  static bool is_pair(const Step& step) {
    return step.reads.count == 1 && step.writes.count + step.allocates.count == 1;
  }
  std::pair<BufferId, BufferId> pair_of(const Step& step) const;
  /// Copies and conversions: one buffer read, one filled, both of the same value.
  bool judge_pair(StepId s);
  void judge_copy(StepId s);
  void judge_conversion(StepId s);

  // --- collectives
  void prepare_exchanges();
  std::optional<Exchange::Flow> flow_of(StepId s, const Exchange& exchange);
  /// Whether all ranks of a group begin its collectives in one order.
  void judge_order_of_collectives();
  void judge_flow(StepId s);
  void judge_whole_collective(StepId s);
  void judge_exchanged_value(StepId s, const Collective& collective);
  void judge_exchanged_ranges(StepId s, const Collective& collective);
  void judge_while_it_ran(StepId s, const Collective& collective);
  void give_results(StepId s, const Collective& collective);

  // --- costs: what the file states against the model
  void judge_cost(StepId s);
  void judge_cost_of_op(StepId s);
  void judge_cost_on_host(StepId s);
  bool is_between_devices(const Step& step) const;
  void judge_cost_of_sum(StepId s);
  /// Whether one of these buffers is of the tensor's storage.
  bool fills(const Slice& slice, TensorId t) const;
  Bytes workspace_of(const Step& step, bool keeps, bool in_one_call) const;
  void judge_cost_of_copy(StepId s);
  void judge_stream_of_copy(StepId s, BufferId from, BufferId to);
  void judge_label(StepId s, bool repeats);
  const std::optional<Route>& route(RouteId id);

  // --- the whole
  void judge_completeness();
  void judge_places_of_ops();
  void judge_final_gradients();
  /// What was there at the start must be there at the end, updated: the next iteration begins with it.
  void judge_next_iteration();

  std::size_t run_of(const Step& step) const;

  const Schedule& schedule_;
  const Graph& graph_;
  const Platform& platform_;
  std::size_t limit_;
  std::vector<Violation> found_;
  std::optional<HappensBefore> before_;
  static constexpr std::uint32_t not_yet = UINT32_MAX, no_more = UINT32_MAX - 1;
  std::vector<std::uint32_t> held_at_;                 // by buffer: index into held_, not_yet or no_more
  std::deque<Held> held_;                              // of a buffer, one after the other
  std::vector<std::uint32_t> unused_;                  // of held_
  Held dead_;                                          // of every buffer that has none any more
  std::uint32_t slices_ = 1;                           // of a sequence: consecutive micro-batches
  std::vector<bool> outlives_free_;                    // by buffer: its collective may end later
  std::vector<bool> was_approximate_;                  // by buffer: at any time
  std::uint32_t lists_a_storage_ = 1;                  // of live buffers; micro-batches take turns at them
  std::vector<BufferId> newest_live_;                  // by list, none if it is empty
  std::map<Place, Bytes> loaded_;                      // of network inputs, by the ops that read them first
  std::vector<std::size_t> first_run_;                 // by op: index into ran_ of its first run
  std::vector<std::uint32_t> ran_;                     // by run of an op: how often it was made
  std::vector<std::vector<OpId>> makers_;              // by tensor: who makes a parameter gradient
  std::set<std::pair<TensorId, std::uint32_t>> used_;  // by an update (.., replica)
  std::set<std::tuple<OpId, std::uint32_t, std::uint32_t, std::optional<MemoryId>>>
      updated_;                   // by which op, in which update, (replica, where)
  std::vector<bool> is_updated_;  // by storage
  std::map<std::pair<StorageId, std::uint32_t>, std::uint32_t> newest_;                // (.., replica): version
  std::map<std::tuple<StorageId, std::uint32_t, std::uint32_t>, std::uint32_t> read_;  // (.., micro-batch, replica)
  std::set<TensorId> approximated_;                                                    // parameter gradients
  std::uint32_t most_stale_ = 0;
  std::vector<Callers> callers_;                               // by device
  std::vector<Exchange> exchanges_;                            // by collective
  std::vector<Ends> ends_;                                     // by stream
  std::vector<BufferId> given_;                                // what the compute step reads, writes and allocates
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges_;  // of an input, in those: offsets and lengths
  std::map<Endpoints, std::optional<Route>> routes_;
  RouteFinder route_finder_;
};

}  // namespace plimsoll
