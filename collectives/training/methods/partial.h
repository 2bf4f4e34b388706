// Partial all-reduce: each worker takes a step on its own model and averages it in groups that
// change (Ripples / Prague), with collective::GroupAverage, every section_length iterations.
//
// Unless groups are static, workers leave one by one, and training continues without dead
// workers. stopped() returns what the worker itself has asked for.
//
// With static groups a death is an error that names the dead rank, and all workers stop after the
// same iteration. For that a flag is appended to the model and averaged with it. A worker that
// wants to stop sets the flag, and so does a worker that reads a value above zero. The flag spreads
// along the groups: to the worker's host, to the other hosts, and within them. kSpread averages,
// counted from a multiple of kSpread, bring it to every worker
// (tests/collectives/training_partial_test.cc checks all layouts). A flag is first set at such a
// multiple. At the next one either all workers or none have seen it, and then they stop.
#pragma once

#include <cstdint>
#include <memory>

#include "collectives/groups/static_schedule.h"
#include "collectives/training/method.h"

namespace dunlin::training {

// Two periods of the schedule.
inline constexpr std::uint64_t kSpread = 2 * collective::StaticSchedule::kPeriod;

// The generator's options. Without a layout, hosts have `local_size` workers if that divides the
// job, else one. A group has at most all workers.
collective::GroupOptions groups_of(const MethodOptions& options, int ranks, int local_size);

Result<std::unique_ptr<Method>> prepare_partial(transport::Fabric& fabric,
                                                const MethodOptions& options);

}  // namespace dunlin::training
