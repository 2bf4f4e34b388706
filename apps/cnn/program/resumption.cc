// Trainer: how it continues from checkpoints, with any number of workers. checkpoint_search.h says
// which checkpoint is taken and which saved states fall to a worker, redistribution.h what becomes
// of them with another number of workers.
#include "apps/cnn/program/trainer.h"
#include "apps/cnn/redistribution.h"

namespace dunlin::cnn {
namespace {

// What a worker has done is counted in iterations.
Result<SavedState> read_state(const std::string& path) {
  DUNLIN_ASSIGN(const Checkpoint saved, load_checkpoint(path));
  return SavedState{{saved.rank, saved.ranks, saved.iteration}, saved.run, saved.iteration};
}

}  // namespace

// Collective over the workers. Servers have nothing to save.
Status Trainer::find_checkpoint() {
  if (options_.resume.empty() || !team_.is_worker()) return Status::ok();
  CheckpointSearch search;
  search.topic = "cnn";
  search.base = options_.resume;
  for (int rank = 0; rank < team_.workers(); ++rank) search.members.emplace_back(rank);
  search.ranks = static_cast<std::uint32_t>(team_.workers());
  search.needs_same_iteration = !ends_alone(method_);
  search.timeout = kLongestPreparation;
  DUNLIN_ASSIGN(found_, dunlin::find_checkpoint(search, read_state, fabric_.bootstrap()));
  return Status::ok();
}

// Returns the state to continue from, as a checkpoint of this run. `current` describes the run as
// it would start anew.
Result<Checkpoint> Trainer::resumed_state(const FoundCheckpoint& found, const Checkpoint& current) {
  const auto load = [&](std::uint32_t rank) -> Result<Checkpoint> {
    DUNLIN_ASSIGN(Checkpoint saved,
                  load_checkpoint(checkpoint_path(options_.resume, found.name(rank))));
    DUNLIN_TRY(check_resumable(saved, current));
    return saved;
  };
  if (found.ranks() == current.ranks) return load(current.rank);
  Redistribution redistribution;
  for (const std::uint32_t rank : found.own) {
    DUNLIN_ASSIGN(const Checkpoint saved, load(rank));
    redistribution.add(saved);
  }
  // The saved run had the same images and batches of the same size, so that it had a batch in an
  // epoch.
  const auto saved_per_epoch = static_cast<double>(feed_->per_epoch(found.ranks()));
  const double epochs = found.done / found.ranks() / saved_per_epoch;
  return redistribution.state(current.rank, current.ranks, current.run,
                              iteration_after(epochs, per_epoch_, end_step()));
}

Status Trainer::go_on_from(const FoundCheckpoint& found) {
  DUNLIN_ASSIGN(const Checkpoint current, checkpoint());
  DUNLIN_ASSIGN(const Checkpoint saved, resumed_state(found, current));
  if (!options_.checkpoint.empty()) {
    files_.resume(
        saved_iterations(options_.checkpoint, saved.rank, saved.ranks, saved.run, read_state),
        saved.iteration);
  }
  DUNLIN_TRY(device_->write(sync_->parameters(), saved.parameters));
  DUNLIN_TRY(device_->write(sync_->velocity(), saved.velocity));
  DUNLIN_TRY(device_->write(network_->statistics(), saved.statistics));
  run_ = saved.run;
  iteration_ = first_ = saved.iteration;
  means_.loss = saved.loss;
  means_.accuracy = saved.accuracy;
  means_.batches = saved.batches;
  return Status::ok();
}

}  // namespace dunlin::cnn
