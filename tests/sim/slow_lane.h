// SlowLane: a lane with atomics and reads whose operations take effect one by one, in random order,
// and complete in events of their own. For the simulations of the mutex of words.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "transports/fabric.h"

namespace dunlin::testing {

// Pending events of all lanes, which take effect one by one, in random order.
class PendingEvents {
 public:
  explicit PendingEvents(std::mt19937_64& random) : random_(random) {}
  void add(int owner, std::function<void()> what) { due_.push_back({owner, std::move(what)}); }
  void run_one() {
    if (due_.empty()) return;
    std::swap(due_[random_() % due_.size()], due_.back());
    const auto one = std::move(due_.back());
    due_.pop_back();
    one.what();
  }
  // Operations of a dead rank may take effect or not.
  void drop_some(int owner) {
    std::erase_if(due_, [&](const Due& one) { return one.owner == owner && random_() % 2 == 0; });
  }

 private:
  struct Due {
    int owner;
    std::function<void()> what;
  };
  std::mt19937_64& random_;
  std::vector<Due> due_;
};

// A lane from one rank to another, with access to the peer's board and to the owner rank's words.
// `is_shut`: the receiver lets nothing of this lane in any more.
class SlowLane final : public transport::Lane,
                       public transport::RemoteAtomics,
                       public transport::RemoteReads {
 public:
  SlowLane(int owner, PendingEvents& events, transport::NotifyBoard& board,
           std::vector<std::uint64_t>& words, std::mt19937_64& random, bool breaks,
           std::function<bool()> is_shut)
      : owner_(owner),
        events_(events),
        board_(board),
        words_(words),
        random_(random),
        breaks_(breaks),
        is_shut_(std::move(is_shut)) {}

  Status put(transport::LocalSlice, transport::RemoteSlice, transport::Completion*) override {
    return unused();
  }
  Status put_notify(transport::LocalSlice, transport::RemoteSlice, const transport::Notification&,
                    transport::Completion*) override {
    return unused();
  }
  Status flush(transport::Visibility, transport::Completion*) override { return unused(); }
  Status notify(const transport::Notification& notification, transport::Completion*) override {
    if (random_() % 4 == 0) return Status::busy();
    events_.add(owner_, [this, notification] {
      if (!is_shut()) board_.cell(notification.id).publish(notification);
    });
    return Status::ok();
  }
  transport::RemoteReads* reads() override { return this; }
  transport::RemoteAtomics* atomics() override { return this; }
  bool is_idle() const override { return true; }
  std::size_t progress() override { return 0; }
  void close() noexcept override {}

  Status fetch_add(transport::RemoteSlice word, std::uint64_t operand, std::uint64_t* before,
                   transport::Completion* completion) override {
    return carry_out(completion, before,
                     [=, this] { return std::exchange(at(word), at(word) + operand); });
  }
  Status compare_swap(transport::RemoteSlice word, std::uint64_t expected, std::uint64_t desired,
                      std::uint64_t* before, transport::Completion* completion) override {
    return carry_out(completion, before, [=, this] {
      return at(word) == expected ? std::exchange(at(word), desired) : at(word);
    });
  }
  transport::AtomicScope scope() const override { return transport::AtomicScope::kTransport; }
  // Words are read one by one, in events of their own.
  Status get(transport::RemoteSlice from, transport::LocalSlice to,
             transport::Completion* completion) override {
    return read(from.offset() / 8, reinterpret_cast<std::uint64_t*>(to.data()), from.size() / 8,
                completion);
  }

 private:
  bool is_shut() const { return is_shut_ && is_shut_(); }
  Status unused() const { return {Code::kInternal, "the mutex does not call this"}; }
  std::uint64_t& at(const transport::RemoteSlice& word) { return words_[word.offset() / 8]; }
  Status carry_out(transport::Completion* completion, std::uint64_t* before,
                   std::function<std::uint64_t()> what) {
    if (random_() % 4 == 0) return Status::busy();
    if (breaks_ && random_() % 4 == 0) {
      events_.add(owner_, [=, this] {
        if (is_shut()) return;
        if (random_() % 2 == 0) what();
        events_.add(owner_, [=] { completion->fire({Code::kIoError, "the connection broke"}); });
      });
      return Status::ok();
    }
    events_.add(owner_, [=, this] {
      if (is_shut()) return;
      const std::uint64_t former = what();
      events_.add(owner_, [=] {
        *before = former;
        completion->fire(Status::ok());
      });
    });
    return Status::ok();
  }
  Status read(std::size_t first, std::uint64_t* to, std::size_t left,
              transport::Completion* completion) {
    events_.add(owner_, [=, this] {
      if (is_shut()) return;
      if (left == 0) return completion->fire(Status::ok());
      *to = words_[first];
      (void)read(first + 1, to + 1, left - 1, completion);
    });
    return Status::ok();
  }

  int owner_;
  PendingEvents& events_;
  transport::NotifyBoard& board_;
  std::vector<std::uint64_t>& words_;
  std::mt19937_64& random_;
  bool breaks_;
  std::function<bool()> is_shut_;
};

class SlowLink final : public transport::Link {
 public:
  SlowLink(Rank peer, int owner, PendingEvents& events, transport::NotifyBoard& board,
           std::vector<std::uint64_t>& words, std::mt19937_64& random, bool breaks,
           std::function<bool()> is_shut = {})
      : Link(peer), lane_(owner, events, board, words, random, breaks, std::move(is_shut)) {}
  transport::Lane& data() override { return lane_; }
  transport::Lane& control() override { return lane_; }
  Result<std::unique_ptr<transport::RemoteRegion>> import_region(std::span<const std::byte>,
                                                                 std::size_t size) override {
    return std::make_unique<transport::RemoteRegion>(*this, size);
  }

 private:
  SlowLane lane_;
};

}  // namespace dunlin::testing
