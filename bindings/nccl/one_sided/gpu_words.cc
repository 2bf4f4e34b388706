#include "bindings/nccl/one_sided/gpu_words.h"

#include <algorithm>

namespace dunlin::nccl {

Result<std::unique_ptr<GpuWords>> GpuWords::create(std::shared_ptr<GpuDriver> driver, int device) {
  std::unique_ptr<GpuWords> made(new GpuWords(std::move(driver), device));
  DUNLIN_ASSIGN(made->copies_,
                MemoryRegion::allocate(kRound * sizeof(std::uint64_t), {.is_private = true}));
  // Copies of memory that is not pinned only take longer.
  made->is_pinned_ = made->driver_->pin(device, made->copies_->bytes()).is_ok();
  DUNLIN_ASSIGN(made->stream_, made->driver_->create_stream(device));
  return made;
}

GpuWords::~GpuWords() {
  if (step_ != Step::kIdle) {
    // Copies may still be in progress, so the memory stays.
    (void)new std::shared_ptr<MemoryRegion>(std::move(copies_));
  } else if (is_pinned_) {
    driver_->unpin(device_, copies_->data());
  }
}

void GpuWords::add(std::byte* word, std::uint64_t value) {
  const auto [found, is_new] = index_.try_emplace(word, pending_.size());
  if (is_new) {
    pending_.push_back({word, value});
  } else {
    pending_[found->second].value += value;
  }
}

Status GpuWords::begin_round() {
  const auto count = static_cast<std::ptrdiff_t>(std::min(pending_.size(), kRound));
  round_.assign(pending_.begin(), pending_.begin() + count);
  pending_.erase(pending_.begin(), pending_.begin() + count);
  index_.clear();
  for (std::size_t i = 0; i < pending_.size(); ++i) index_.emplace(pending_[i].word, i);
  step_ = Step::kReading;
  std::byte* copy = copies_->data();
  for (const Addend& each : round_) {
    DUNLIN_TRY(stream_->copy_to_host(copy, each.word, sizeof each.value));
    copy += sizeof each.value;
  }
  return Status::ok();
}

Status GpuWords::write_back() {
  step_ = Step::kWriting;
  auto* const copies = reinterpret_cast<std::uint64_t*>(copies_->data());
  for (std::size_t i = 0; i < round_.size(); ++i) {
    copies[i] += round_[i].value;
    DUNLIN_TRY(stream_->copy_to_device(round_[i].word, &copies[i], sizeof copies[i]));
  }
  return Status::ok();
}

Status GpuWords::progress() {
  while (failure_.is_ok()) {
    Status status;
    if (step_ == Step::kIdle) {
      if (pending_.empty()) return Status::ok();
      status = begin_round();
    } else {
      status = stream_->poll();
      if (status.is_busy()) return Status::ok();
      if (status.is_ok()) {
        if (step_ == Step::kReading) {
          status = write_back();
        } else {
          step_ = Step::kIdle;
        }
      }
    }
    if (status.is_error()) failure_ = std::move(status).with_context("a signal in GPU memory");
  }
  return failure_;
}

bool GpuWords::is_using(const std::byte* data, std::size_t size) const {
  const auto is_within = [&](const Addend& each) {
    return each.word >= data && each.word < data + size;
  };
  return std::ranges::any_of(pending_, is_within) ||
         (step_ != Step::kIdle && std::ranges::any_of(round_, is_within));
}

}  // namespace dunlin::nccl
