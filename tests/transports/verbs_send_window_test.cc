// SendWindow: which work requests are signaled, when the send queue and the peer's mailbox are
// full, and how the numbers go on over another connection.
#include "transports/verbs/path/send_window.h"

#include <gtest/gtest.h>

#include "transports/verbs/constants.h"

namespace dunlin::transport::verbs {
namespace {

constexpr std::uint32_t kSlots = 4;

Answer answer_of(std::uint64_t taken) {
  Answer answer{};
  answer.mailbox_address = 4096;
  answer.taken = taken;
  answer.mailbox_key = 7;
  answer.slots = kSlots;
  answer.version = kWireVersion;
  return answer;
}

TEST(VerbsSendWindow, SignalsEveryFewRequestsAndTheLastOneThatFits) {
  SendWindow window(100);
  for (std::uint32_t number = 1; number <= 96; ++number) {
    EXPECT_EQ(window.next_request(), number);
    EXPECT_EQ(window.must_signal(false), number % kSignalEvery == 0) << number;
  }
  for (std::uint32_t number = 97; number <= 100; ++number) {
    ASSERT_TRUE(window.has_request_room());
    (void)window.next_request();
    EXPECT_EQ(window.must_signal(false), number == 100) << number;
  }
  EXPECT_FALSE(window.has_request_room());
  window.take_back(96);
  EXPECT_TRUE(window.has_request_room());
  EXPECT_TRUE(window.awaits_completion());
  EXPECT_TRUE(window.is_returned(96));
  EXPECT_FALSE(window.is_returned(97));
  window.take_back(100);
  EXPECT_FALSE(window.awaits_completion());
}

TEST(VerbsSendWindow, AWantedSignalBeginsTheCountAnew) {
  SendWindow window(100);
  (void)window.next_request();
  EXPECT_TRUE(window.must_signal(true));
  for (std::uint32_t number = 1; number <= kSignalEvery; ++number) {
    (void)window.next_request();
    EXPECT_EQ(window.must_signal(false), number == kSignalEvery) << number;
  }
}

TEST(VerbsSendWindow, TheMailboxIsFullUntilThePeerReturnsCredits) {
  SendWindow window(100);
  window.resume(answer_of(0));
  for (std::uint64_t slot = 0; slot < kSlots; ++slot) {
    ASSERT_TRUE(window.has_mailbox_room());
    EXPECT_EQ(window.next_slot(), 4096 + slot * sizeof(Record));
    EXPECT_EQ(window.next_notification(), slot + 1);
  }
  EXPECT_FALSE(window.has_mailbox_room());
  window.take_credit(2);
  EXPECT_TRUE(window.has_mailbox_room());
  EXPECT_EQ(window.next_slot(), 4096u);
}

TEST(VerbsSendWindow, CreditsCarryTheLowBitsOfTheirNumber) {
  constexpr std::uint64_t kTaken = (std::uint64_t{1} << 32) - 1;
  SendWindow window(100);
  window.resume(answer_of(kTaken));
  for (std::uint32_t i = 0; i < kSlots; ++i) (void)window.next_notification();
  EXPECT_FALSE(window.has_mailbox_room());
  window.take_credit(1);  // 2^32 + 1
  EXPECT_TRUE(window.has_mailbox_room());
  EXPECT_FALSE(window.can_resume(answer_of(kTaken + 1)));
  EXPECT_TRUE(window.can_resume(answer_of(kTaken + 2)));
}

TEST(VerbsSendWindow, ACreditForNothingOnTheWayIsIgnored) {
  SendWindow window(100);
  window.resume(answer_of(7));
  for (std::uint32_t i = 0; i < kSlots; ++i) (void)window.next_notification();
  window.take_credit(6);               // of an earlier connection
  window.take_credit(7 + kSlots + 1);  // was not sent yet
  EXPECT_FALSE(window.has_mailbox_room());
  window.take_credit(8);
  EXPECT_TRUE(window.has_mailbox_room());
  EXPECT_EQ(window.on_the_way(), kSlots - 1);
}

TEST(VerbsSendWindow, AnotherConnectionGoesOnBehindWhatThePeerHasTaken) {
  SendWindow window(100);
  window.resume(answer_of(0));
  for (int i = 0; i < 3; ++i) (void)window.next_notification();
  for (int i = 0; i < 5; ++i) (void)window.next_request();
  window.note_arrival(1);
  EXPECT_FALSE(window.can_resume(answer_of(0)));  // one has arrived
  EXPECT_FALSE(window.can_resume(answer_of(4)));  // three were sent
  ASSERT_TRUE(window.can_resume(answer_of(2)));
  window.resume(answer_of(2));
  EXPECT_EQ(window.next_notification(), 3u);
  EXPECT_TRUE(window.is_returned(5));
  EXPECT_FALSE(window.awaits_completion());
  EXPECT_EQ(window.next_request(), 6u);
}

}  // namespace
}  // namespace dunlin::transport::verbs
