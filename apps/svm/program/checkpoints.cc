#include "apps/svm/program/checkpoints.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "runtime/log.h"

namespace dunlin::svm {
namespace {

// The checkpoints of a rank that can be loaded.
std::map<CheckpointMoment, Checkpoint> load_all(const std::string& base, Rank rank) {
  std::map<CheckpointMoment, Checkpoint> found;
  for (const std::string& path : checkpoint_files(base, rank)) {
    auto checkpoint = load_checkpoint(path);
    if (checkpoint) {
      const CheckpointMoment moment{checkpoint->run, checkpoint->iteration};
      found.emplace(moment, std::move(checkpoint).value());
    } else {
      DUNLIN_WARN("{}", checkpoint.status().to_string());
    }
  }
  return found;
}

}  // namespace

Status CheckpointWriter::save(const Checkpoint& checkpoint) {
  DUNLIN_TRY(save_checkpoint(files_.path(checkpoint.iteration), checkpoint));
  files_.note_saved(checkpoint.iteration);
  return Status::ok();
}

Result<Checkpoint> load_common_checkpoint(const std::string& base, Bootstrap& bootstrap,
                                          const Membership& membership, bool needs_same_exchange,
                                          Duration timeout) {
  auto own = load_all(base, bootstrap.rank());
  std::set<CheckpointMoment> moments;
  for (const auto& [moment, checkpoint] : own) moments.insert(moment);
  DUNLIN_ASSIGN(const CheckpointMoment chosen,
                common_checkpoint(fmt::format("svm/{}", membership.epoch), base, moments, bootstrap,
                                  membership.members, needs_same_exchange, timeout));
  return std::move(own.at(chosen));
}

}  // namespace dunlin::svm
