#include "tools/dunlin-perf/benchmarks/pair.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::perf {

using transport::Notification;
using transport::NotifyId;
using transport::Visibility;

Pair::Pair(Job& job)
    : job_(job), leads_(job.rank().value() % 2 == 0), peer_(job.rank().value() ^ 1) {}

Result<std::unique_ptr<Pair>> Pair::create(Job& job, std::size_t bytes) {
  std::unique_ptr<Pair> pair(new Pair(job));
  DUNLIN_TRY(pair->start(bytes));
  return pair;
}

Status Pair::start(std::size_t bytes) {
  const std::size_t room = std::max<std::size_t>(bytes, transport::kCacheLine);
  DUNLIN_ASSIGN(source_, job_.allocate(room));
  DUNLIN_ASSIGN(target_, job_.allocate(room));
  DUNLIN_ASSIGN(cell_, job_.fabric().board().allocate(1));
  DUNLIN_TRY(exchange());
  if (!has_limit()) return sync();
  auto bare = BarePingPong::create(job_, peer_, leads_);
  if (!bare && bare.status().code() != Code::kUnavailable) return std::move(bare).status();
  if (bare) bare_ = std::move(bare).value();
  return sync();
}

Status Pair::exchange() {
  const auto key = [](Rank rank) { return fmt::format("perf/pair/{}", rank.value()); };
  Bootstrap& bootstrap = job_.fabric().bootstrap();
  ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(cell_)).blob(target_->descriptor());
  DUNLIN_TRY(bootstrap.publish(key(job_.rank()), writer.take()));
  DUNLIN_ASSIGN(const Bytes offer,
                bootstrap.lookup_from(peer_, key(peer_), job_.config().deadline));
  ByteReader reader(offer);
  peer_cell_ = NotifyId(reader.number<std::uint32_t>());
  DUNLIN_ASSIGN(remote_, job_.fabric().import_region(peer_, reader.blob()));
  DUNLIN_ASSIGN(link_, job_.fabric().link(peer_));
  return Status::ok();
}

Pair::~Pair() {
  remote_.reset();
  // After a failure, operations may still be outstanding. They complete here, while flushed_
  // exists.
  if (link_ != nullptr) job_.fabric().drop_link(peer_);
  job_.fabric().board().free(cell_, 1);
}

Status Pair::flush(Visibility visibility) {
  flushed_.reset();
  DUNLIN_TRY(job_.post(peer_, [&] { return lane().flush(visibility, &flushed_); }));
  if (!flushed_.is_done()) {
    DUNLIN_TRY(job_.await(peer_, "a flush", [&] { return flushed_.is_done(); }));
  }
  return flushed_.status();
}

Status Pair::notify(std::uint64_t tag) {
  Notification next = next_notification();
  next.tag = tag;
  return job_.post(peer_, [&] { return lane().notify(next, nullptr); });
}

Result<std::uint64_t> Pair::agree(std::uint64_t leaders) {
  if (leads_) {
    DUNLIN_TRY(notify(leaders));
    DUNLIN_TRY(await_notification());
    return leaders;
  }
  DUNLIN_TRY(await_notification());
  const std::uint64_t told = job_.fabric().board().cell(cell_).tag;
  DUNLIN_TRY(notify());
  return told;
}

Status Pair::finish() {
  DUNLIN_TRY(sync());
  remote_.reset();
  return sync();
}

Status Pair::sync() {
  DUNLIN_TRY(notify());
  DUNLIN_TRY(flush(Visibility::kRemote));
  return await_notification();
}

}  // namespace dunlin::perf
