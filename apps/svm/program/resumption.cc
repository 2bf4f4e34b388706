#include "apps/svm/program/resumption.h"

#include <fmt/format.h>

#include "apps/checkpoint_search.h"
#include "apps/svm/program/checkpoints.h"
#include "apps/svm/redistribution.h"
#include "runtime/bytes.h"

namespace dunlin::svm {
namespace {

// Sums over the members, of what they saved and of what they have now.
struct DataSums {
  std::uint64_t saved_rows = 0;
  std::uint64_t rows = 0;
  Digest saved_data{};
  Digest data{};
};

void write(ByteWriter& writer, const Digest& digest) {
  for (const std::byte each : digest) writer.number(std::to_integer<std::uint8_t>(each));
}

Digest read_digest(ByteReader& reader) {
  Digest digest;
  for (std::byte& each : digest) each = std::byte{reader.number<std::uint8_t>()};
  return digest;
}

// Collective: returns the sums over all members.
Result<DataSums> summed(const DataSums& own, transport::Fabric& fabric,
                        const Membership& membership) {
  ByteWriter writer;
  writer.number(own.saved_rows).number(own.rows);
  write(writer, own.saved_data);
  write(writer, own.data);
  DUNLIN_ASSIGN(
      const Bytes records,
      fabric.bootstrap().gather(fmt::format("svm/data/{}", membership.epoch), membership.members,
                                writer.take(), fabric.config().bootstrap_timeout));
  DataSums all;
  ByteReader reader(records);
  while (!reader.at_end() && reader.ok()) {
    all.saved_rows += reader.number<std::uint64_t>();
    all.rows += reader.number<std::uint64_t>();
    all.saved_data = sum_of(all.saved_data, read_digest(reader));
    all.data = sum_of(all.data, read_digest(reader));
  }
  if (!reader.at_end()) return Status(Code::kCorrupted, "malformed sums of the members' data");
  return all;
}

Status compare(const DataSums& all) {
  const auto differ = [](const char* what, const auto& before, const auto& now) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("the checkpoint was made with {} {}, this run has {}", what, before, now));
  };
  if (all.saved_rows != all.rows) return differ("rows of all shards", all.saved_rows, all.rows);
  if (all.saved_data == all.data) return Status::ok();
  return differ("data", dunlin::to_string(all.saved_data), dunlin::to_string(all.data));
}

// Where another number of ranks has saved.
Result<Checkpoint> redistributed(const FoundCheckpoint& found, transport::Fabric& fabric,
                                 const Membership& membership, const Options& options,
                                 std::uint64_t total_rows, const Checkpoint& fresh) {
  Redistribution redistribution;
  DataSums own{.rows = fresh.shard_rows, .data = fresh.data};
  for (const std::uint32_t rank : found.own) {
    DUNLIN_ASSIGN(const Checkpoint saved,
                  load_checkpoint(checkpoint_path(options.resume, found.name(rank))));
    DUNLIN_TRY(check_resumable(saved, fresh));
    redistribution.add(saved);
    if (!found.has_read) continue;
    own.saved_rows += saved.shard_rows;
    own.saved_data = sum_of(own.saved_data, saved.data);
  }
  DUNLIN_ASSIGN(const DataSums all, summed(own, fabric, membership));
  // The shards of ranks that died before the training are not there to compare.
  if (membership.members.size() == fresh.ranks) DUNLIN_TRY(compare(all));
  const std::uint64_t exchanges =
      exchanges_for(found.done, total_rows, fresh.ranks, options.sync_every);
  return redistribution.state(fresh, exchanges, options.sync_every);
}

}  // namespace

Result<Checkpoint> resume(transport::Fabric& fabric, const Membership& membership,
                          const Options& options, std::uint64_t total_rows,
                          const Checkpoint& fresh) {
  CheckpointSearch search;
  search.topic = fmt::format("svm/{}", membership.epoch);
  search.base = options.resume;
  search.members = membership.members;
  search.ranks = fresh.ranks;
  search.needs_same_iteration = options.sync != collective::SyncMode::kAsync;
  search.timeout = fabric.config().bootstrap_timeout;
  DUNLIN_ASSIGN(const FoundCheckpoint found,
                find_checkpoint(search, read_state, fabric.bootstrap()));
  if (found.ranks() != fresh.ranks)
    return redistributed(found, fabric, membership, options, total_rows, fresh);
  DUNLIN_ASSIGN(Checkpoint saved,
                load_checkpoint(checkpoint_path(options.resume, found.name(fresh.rank))));
  DUNLIN_TRY(check_resumable(saved, fresh));
  // Where --sync-every was another one, the exchanges are counted anew from the examples, of which
  // members in step have trained on the same number each.
  const std::uint64_t exchanges = examples_of(saved) / options.sync_every;
  if (exchanges != saved.iteration && options.checkpoint == options.resume) {
    return Status(Code::kInvalidArgument,
                  "with another --sync-every than before, the run needs another path for "
                  "--checkpoint than for --resume: its checkpoints would get numbers that those of "
                  "the former run have");
  }
  saved.iteration = exchanges;
  return saved;
}

}  // namespace dunlin::svm
