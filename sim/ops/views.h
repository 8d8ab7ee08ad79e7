#pragma once
// Several names for one thing: views, weights that are tied by sharing a storage, an input that an op lists twice.
// A view launches nothing and takes no memory, and what it shows is there as long as its storage is. So nobody plans
// or runs views: who reads one reads the value that its storage holds.

#include "sim/core/graph.h"

namespace plimsoll {

struct WithoutViews {
  Graph graph;
  Seconds view_time;  ///< what the trace gives for the views
};

/// The graph in which
///  - an op that only makes views (each output has the storage of an input that the op does not overwrite) is marked
///    `is_view` and reads and makes nothing; its readers read the value it shows, as it is when they run;
///  - parameters that share a storage are one, the first of them; so are inputs, optimizer states and parameter
///    gradients. A parameter gradient that is a view of what an op makes, or that overwrites it, is made by that op;
///  - what an op other than an update overwrites of a parameter (running statistics) is only read, and the op runs
///  once;
///    so is a parameter gradient that an update overwrites (clipped, set to zero);
///  - an op lists each input once.
/// Ops and tensors keep their indices. Tensors that were only other names have no bytes and no readers.
WithoutViews without_views(Graph);

}  // namespace plimsoll
