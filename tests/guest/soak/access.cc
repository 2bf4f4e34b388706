#include "tests/guest/soak/access.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::soak {

using transport::Fabric;

Result<std::unique_ptr<Library>> Library::create(Fabric& fabric, std::uint64_t seed, bool wraps) {
  auto library = std::make_unique<Library>();
  const std::size_t words = kCounters + 1024 + Random(seed).below(32 * 1024);
  if (wraps) {
    library->memory_.resize(words);
    DUNLIN_ASSIGN(auto memory,
                  MemoryRegion::wrap(library->memory_.data(), words * sizeof(std::uint64_t)));
    DUNLIN_ASSIGN(library->region_, fabric.register_memory(std::move(memory)));
  } else {
    DUNLIN_ASSIGN(library->region_, fabric.allocate(words * sizeof(std::uint64_t)));
  }
  fill(library->region_->memory()->bytes().subspan(kCounterBytes), seed);
  return library;
}

void Prober::set_library(transport::RemoteRegion* library, std::uint64_t seed) {
  library_ = library;
  seed_ = seed;
  is_stopped_ = library == nullptr;
  least_.fill(0);
  added_ = 0;
}

Status Prober::step() {
  if (is_posted_) {
    if (!completion_.is_done()) return Status::ok();
    DUNLIN_TRY(finish());
  }
  if (is_stopped_) {
    is_planned_ = false;
    return Status::ok();
  }
  if (!is_planned_) plan();
  const Status status = post();
  is_posted_ = status.is_ok();
  return status.is_busy() ? Status::ok() : status;
}

void Prober::plan() {
  is_planned_ = true;
  lane_ = random_.below(2) == 0 ? &link_.data() : &link_.control();
  const bool can_read = lane_->reads() != nullptr;
  const bool can_count = lane_->atomics() != nullptr;
  is_atomic_ = can_count && (!can_read || random_.below(2) == 0);
  if (!can_read && !can_count) is_stopped_ = true;
  counter_ = random_.below(kCounters);
  operand_ = random_.below(1000);
  const std::size_t room = library_->size() - kCounterBytes;
  offset_ = random_.below(room / 8) * 8;
  size_ = random_.below(std::min(room - offset_, kLargestGet) + 1);
}

Status Prober::post() {
  if (is_stopped_) return Status::busy();
  completion_.reset();
  if (is_atomic_) {
    DUNLIN_ASSIGN(const auto word, library_->slice(counter_ * 8, 8));
    return lane_->atomics()->fetch_add(word, operand_, &before_, &completion_);
  }
  DUNLIN_ASSIGN(const auto from, library_->slice(kCounterBytes + offset_, size_));
  DUNLIN_ASSIGN(const auto to, landing_.slice(0, size_));
  std::fill_n(to.data(), size_, std::byte{0});
  return lane_->reads()->get(from, to, &completion_);
}

Status Prober::finish() {
  is_posted_ = is_planned_ = false;
  DUNLIN_TRY(completion_.status());
  return is_atomic_ ? finish_atomic() : finish_get();
}

Status Prober::finish_get() {
  ++gets_;
  bytes_ += size_;
  const auto wrong = find_difference({landing_.data(), size_}, seed_, offset_);
  if (!wrong) return Status::ok();
  return Status(Code::kCorrupted,
                fmt::format("get {} of {} bytes at {}: byte {} is {:02x}", gets_, size_, offset_,
                            *wrong, static_cast<unsigned>(landing_.data()[*wrong])))
      .with_peer(link_.peer());
}

Status Prober::finish_atomic() {
  ++atomics_;
  added_ += operand_;
  std::uint64_t& least = least_[counter_];
  if (before_ < least) {
    return Status(Code::kCorrupted, fmt::format("counter {} was at {} already, and now at {}",
                                                counter_, least, before_))
        .with_peer(link_.peer());
  }
  least = before_ + operand_;
  return Status::ok();
}

}  // namespace dunlin::soak
