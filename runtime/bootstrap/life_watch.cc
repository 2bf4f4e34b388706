#include "runtime/bootstrap/life_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/bootstrap/constants.h"

namespace dunlin::bootstrap {
namespace {

std::string ended(const ProcessId& process) {
  return fmt::format("process {} ended before it left the job", process.pid);
}

}  // namespace

int LifeWatch::add(Rank rank, const ProcessId& process, TimePoint now) {
  Life& life = lives_[rank] = {process, {}, {}};
  ProcessWatch watch = watch_process(process);
  if (watch.state == ProcessWatch::State::kEnded) absences_.note_ended(rank, ended(process), now);
  if (watch.state != ProcessWatch::State::kAlive) return -1;
  life.pidfd = std::move(watch.pidfd);
  absences_.note_visible(rank);
  return life.pidfd.get();
}

int LifeWatch::descriptor(Rank rank) const {
  const auto found = lives_.find(rank);
  return found == lives_.end() ? -1 : found->second.pidfd.get();
}

void LifeWatch::note_end(Rank rank, TimePoint now) {
  const auto found = lives_.find(rank);
  if (found == lives_.end() || !found->second.pidfd.is_open()) return;
  found->second.pidfd.reset();
  absences_.note_ended(rank, ended(found->second.process), now);
}

void LifeWatch::remove(Rank rank) {
  absences_.forget(rank);
  if (const auto gone = lives_.extract(rank)) inquire_again(gone.mapped().process);
}

void LifeWatch::lose(Rank rank, ConnectionEnd how, TimePoint now) {
  const auto found = lives_.find(rank);
  if (found == lives_.end()) return;
  absences_.begin(rank, how, now);
  found->second.asked.clear();
  inquire_again(found->second.process);  // it is one of those
}

void LifeWatch::regain(Rank rank) {
  absences_.end(rank);
  // The ranks of its host may all have been absent, so that nobody could be asked.
  if (const auto found = lives_.find(rank); found != lives_.end())
    inquire_again(found->second.process);
}

void LifeWatch::inquire_again(const ProcessId& process) {
  for (const Rank rank : absences_.absent()) {
    const auto found = lives_.find(rank);
    if (found != lives_.end() && found->second.process.is_in_space_of(process))
      inquire(rank, found->second);
  }
}

// A rank is asked once. If it loses its connection, too, the question stays on its way.
void LifeWatch::inquire(Rank about, Life& life) {
  if (life.pidfd.is_open()) return;
  auto can_answer = [this](Rank rank) {
    return lives_.contains(rank) && !absences_.is_absent(rank);
  };
  auto asked = static_cast<std::size_t>(std::ranges::count_if(life.asked, can_answer));
  for (const auto& [rank, other] : lives_) {
    if (asked >= kWitnesses) return;
    if (rank == about || absences_.is_absent(rank) || !other.process.is_in_space_of(life.process) ||
        !life.asked.insert(rank).second)
      continue;
    send_(rank,
          {.type = MessageType::kInquire, .subject = about, .text = life.process.to_string()});
    ++asked;
  }
}

void LifeWatch::testify(Rank from, const Message& message, TimePoint now) {
  const auto witness = lives_.find(from);
  const auto about = lives_.find(message.subject);
  if (witness == lives_.end() || about == lives_.end()) return;
  if (!witness->second.process.is_in_space_of(about->second.process)) return;
  if (message.state == PeerState::kDead) {
    absences_.note_ended(about->first, ended(about->second.process), now);
  } else if (absences_.is_absent(about->first)) {
    absences_.note_alive(about->first);
  }
}

std::vector<Absences::Verdict> LifeWatch::take_due(TimePoint now) {
  if (now - last_look_ > kLongestNap) absences_.pass_over(now - last_look_, now);
  last_look_ = now;
  return absences_.take_due(now);
}

TimePoint LifeWatch::next(TimePoint otherwise) const {
  if (absences_.has_any()) otherwise = std::min(otherwise, last_look_ + kLookInterval);
  return absences_.next(otherwise);
}

}  // namespace dunlin::bootstrap
