#include "runtime/bootstrap/membership_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace dunlin::bootstrap {

MembershipBook::MembershipBook(int founders, Send send) : send_(std::move(send)) {
  for (int rank = 0; rank < founders; ++rank) membership_.members.emplace_back(rank);
  present_ = {membership_.members.begin(), membership_.members.end()};
}

bool MembershipBook::is_member(Rank rank) const {
  return std::ranges::binary_search(membership_.members, rank);
}

void MembershipBook::note_gone(Rank rank, PeerState state) {
  if (present_.erase(rank) == 0) return;
  retiring_.erase(rank);
  if (state == PeerState::kDead) dead_.push_back(rank);
  settle_steps();
}

void MembershipBook::change(std::vector<Rank> members) {
  present_ = {members.begin(), members.end()};
  membership_ = {membership_.epoch + 1, std::move(members)};
  dead_.clear();
  steps_.close();
}

void MembershipBook::ask_steps() {
  if (steps_.is_open()) return;
  steps_.open();
  for (const Rank rank : present_)
    send_(rank, {.type = MessageType::kAskStep, .number = membership_.epoch});
}

void MembershipBook::retire(Rank member) {
  if (!present_.contains(member)) return;
  retiring_.insert(member);
  ask_steps();
}

Status MembershipBook::note_step(Rank member, const Message& answer) {
  ByteReader reader(answer.value);
  const auto epoch = reader.number<std::uint64_t>();
  if (!reader.at_end())
    return {Code::kCorrupted, fmt::format("rank {} sent a malformed step", member.value())};
  if (epoch != membership_.epoch || !present_.contains(member)) return Status::ok();
  steps_.note(member, answer.number);
  settle_steps();
  return Status::ok();
}

void MembershipBook::settle_steps() {
  const auto boundary = steps_.take(present_);
  if (!boundary) return;
  for (const Rank rank : present_)
    send_(rank, {.type = MessageType::kBoundary, .number = *boundary});
}

}  // namespace dunlin::bootstrap
