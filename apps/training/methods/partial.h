// Partial all-reduce: after a step on its own model, each worker averages it in groups that change
// (Ripples / Prague), by collective::GroupAverage, every section_length iterations.
//
// Groups of the generator: workers leave one by one, and training goes on without those who die;
// stopped() is what the worker itself asked for.
//
// Static groups: a death is an error that names who died, and all stop after the same iteration.
// Behind the model travels a flag, which is averaged with it; who wants to stop sets it, and
// whoever reads more than zero does, too. Word spreads along the groups: to the worker's node, to
// the other nodes, and into all of them, so that kSpread iterations with averages, counted from a
// multiple of it, bring it to everybody (tests/apps/training_partial_test.cc goes through all
// layouts). A flag is first set at such a multiple, hence seen by all or by nobody when the next
// comes, and then they stop.
#pragma once

#include <cstdint>
#include <memory>

#include "apps/training/method.h"
#include "collectives/partial/static_schedule.h"

namespace dunlin::training {

// Two periods of the schedule.
inline constexpr std::uint64_t kSpread = 2 * collective::StaticSchedule::kPeriod;

// The generator's options: where they have no layout, nodes of `local_size` workers, if the job can
// be cut so; groups of all workers at most.
collective::GroupOptions groups_of(const MethodOptions& options, int ranks, int local_size);

Result<std::unique_ptr<Method>> prepare_partial(transport::Fabric& fabric,
                                                const MethodOptions& options);

}  // namespace dunlin::training
