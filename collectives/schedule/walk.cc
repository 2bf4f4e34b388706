#include "collectives/schedule/walk.h"

#include <fmt/format.h>

#include <unordered_map>

namespace dunlin::collective {
namespace {

const char* to_string(StepKind kind) {
  switch (kind) {
    case StepKind::kPut:
      return "put to";
    case StepKind::kSignal:
      return "signal to";
    case StepKind::kWait:
      return "wait for";
    case StepKind::kReduce:
      return "reduce";
    case StepKind::kDrain:
      return "drain";
  }
  return "unknown";
}

}  // namespace

std::string describe(const Program& program, std::size_t index) {
  const Step& step = program.steps[index];
  std::string text =
      fmt::format("step {} of rank {}: {}", index, program.rank, to_string(step.kind));
  if (step.peer != kSelf)
    text += fmt::format(" rank {}", program.peers[static_cast<std::size_t>(step.peer)]);
  return text + fmt::format(", {} elements", step.count);
}

Walk::Walk(std::span<const Program> programs)
    : programs_(programs), at_(programs.size()), inboxes_(programs.size()) {
  std::vector<std::unordered_map<int, std::int32_t>> index_of(programs.size());
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    const std::vector<int>& peers = programs[rank].peers;
    for (std::size_t i = 0; i < peers.size(); ++i)
      index_of[rank].emplace(peers[i], static_cast<std::int32_t>(i));
    inboxes_[rank].resize(peers.size() * kStreams);
  }
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    auto& indices = index_at_peer_.emplace_back();
    for (const int peer : programs[rank].peers) {
      const auto& known = index_of[static_cast<std::size_t>(peer)];
      const auto found = known.find(static_cast<int>(rank));
      indices.push_back(found == known.end() ? -1 : found->second);
    }
  }
}

void Walk::send(const StepId& id, const Step& step) {
  const auto peer = static_cast<std::size_t>(step.peer);
  const auto rank = static_cast<std::size_t>(id.rank);
  const std::int32_t index = index_at_peer_[rank][peer];
  if (index < 0) return;  // check_end() reports a peer that does not know this rank
  const int to = programs_[rank].peers[peer];
  Inbox* const box =
      inbox(to, index, step.kind == StepKind::kPut ? Stream::kData : Stream::kControl);
  box->messages.push_back(id);
  // A rank that waits for another message stops at its wait again.
  if (box->messages.size() == box->taken + 1) ready_.push_back(to);
}

const StepId* Walk::take(int rank, const Step& step) {
  Inbox* const box = inbox(rank, step.peer, step.stream);
  return box->taken < box->messages.size() ? &box->messages[box->taken++] : nullptr;
}

Status Walk::check_end() const {
  for (std::size_t rank = 0; rank < programs_.size(); ++rank) {
    if (at_[rank] < programs_[rank].steps.size()) {
      return {Code::kCorrupted, fmt::format("no rank sends the message that is expected in {}",
                                            describe(programs_[rank], at_[rank]))};
    }
    for (const std::int32_t index : index_at_peer_[rank]) {
      if (index < 0) {
        return {Code::kCorrupted,
                fmt::format("rank {} has a peer that does not list it as a peer", rank)};
      }
    }
    for (const Inbox& box : inboxes_[rank]) {
      if (box.taken == box.messages.size()) continue;
      const StepId& left = box.messages[box.taken];
      return {Code::kCorrupted,
              fmt::format("rank {} never waits for the message that is sent in {}", rank,
                          describe(programs_[static_cast<std::size_t>(left.rank)], left.index))};
    }
  }
  return Status::ok();
}

}  // namespace dunlin::collective
