// LedgerTest: a ledger of a small job in virtual time, which records the messages that it sends.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "runtime/bootstrap/job_ledger.h"

namespace dunlin::bootstrap {

class LedgerTest : public ::testing::Test {
 protected:
  static constexpr Duration kHeartbeat = std::chrono::milliseconds(100);

  void admit_all() {
    for (int rank = 0; rank < kSize; ++rank) {
      ASSERT_TRUE(ledger_.admit(Rank(rank), now_).is_ok());
    }
  }
  void start() {
    admit_all();
    for (int rank = 0; rank < kSize; ++rank)
      ask(rank, MessageType::kJoin, "", std::chrono::seconds(1));
    sent_.clear();
  }
  void ask(int rank, MessageType type, const std::string& text, Duration timeout,
           Rank subject = Rank()) {
    const Message message{.type = type,
                          .subject = subject,
                          .request = ++requests_,
                          .number = static_cast<std::uint64_t>(timeout.count()),
                          .text = text};
    EXPECT_TRUE(ledger_.receive(Rank(rank), message, now_).is_ok());
  }
  void advance(Duration by) {
    now_ += by;
    ledger_.tick(now_);
  }
  // The replies to a rank since sent_ was cleared.
  std::vector<Message> replies(int rank) const {
    std::vector<Message> result;
    for (const auto& [to, message] : sent_) {
      if (to == Rank(rank) && message.type == MessageType::kReply) result.push_back(message);
    }
    return result;
  }
  std::vector<std::string> notices(int rank) const {
    std::vector<std::string> result;
    for (const auto& [to, message] : sent_) {
      if (to != Rank(rank) || message.type != MessageType::kNotice) continue;
      const std::vector<Rank> ranks =
          message.ranks.empty() ? std::vector{message.subject} : message.ranks;
      for (const Rank each : ranks)
        result.push_back(std::to_string(each.value()) + " " + to_string(message.state));
    }
    return result;
  }

  static constexpr int kSize = 4;
  TimePoint now_{};
  std::uint64_t requests_ = 0;
  std::vector<std::pair<Rank, Message>> sent_;
  JobLedger ledger_{{kSize, kSize}, kHeartbeat, [this](Rank to, const Message& message) {
                      sent_.emplace_back(to, message);
                    }};
};

}  // namespace dunlin::bootstrap
