// PathWatch: when a connection's path counts as broken.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <thread>

#include "transports/tcp/socket.h"

namespace dunlin::testing {
namespace {

using namespace transport::tcp;

constexpr Duration kSilence = std::chrono::milliseconds(40);
constexpr Duration kInterval = std::chrono::milliseconds(1);

// Two ends of a connection over loopback.
class TcpPathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    sockaddr_in loopback{};
    loopback.sin_family = AF_INET;
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Endpoint at(reinterpret_cast<const sockaddr*>(&loopback));
    const auto listener = listen_at(at);
    ASSERT_TRUE(listener.is_ok()) << listener.status().to_string();
    auto connected = connect_to(at);
    ASSERT_TRUE(connected.is_ok()) << connected.status().to_string();
    sender_ = std::move(*connected);
    while (!receiver_.is_open()) {
      Endpoint from;
      auto accepted = accept_from(listener->get(), from);
      ASSERT_TRUE(accepted.is_ok()) << accepted.status().to_string();
      receiver_ = std::move(*accepted);
    }
  }

  // From here on, the receiving kernel drops what arrives, as if the path were broken.
  void break_path() {
    sock_filter drop_all[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
    const sock_fprog program = {1, drop_all};
    ASSERT_EQ(setsockopt(receiver_.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program),
              0);
  }
  void send_byte() {
    const char byte = 1;
    ASSERT_EQ(::send(sender_.get(), &byte, 1, MSG_NOSIGNAL), 1);
  }

  const SteadyClock clock_;
  Fd sender_;
  Fd receiver_;
};

TEST_F(TcpPathTest, IsSilentOnceBytesHaveWaitedForLong) {
  PathWatch watch(kSilence, kInterval);
  break_path();
  send_byte();
  std::this_thread::sleep_for(2 * kSilence);
  const TimePoint first = clock_.now();
  for (Duration waited{}; waited < kSilence; waited += kInterval)
    EXPECT_FALSE(watch.is_silent(sender_.get(), first + waited));
  EXPECT_TRUE(watch.is_silent(sender_.get(), first + kSilence));
}

// Nothing has been heard of the peer since the last byte.
TEST_F(TcpPathTest, IsNotSilentAtTheFirstByteAfterALongPause) {
  PathWatch watch(kSilence, kInterval);
  std::this_thread::sleep_for(2 * kSilence);
  break_path();  // so that the byte is not acknowledged before the watch looks
  send_byte();
  EXPECT_FALSE(watch.is_silent(sender_.get(), clock_.now()));
}

// What waited at the first look has been acknowledged since.
TEST_F(TcpPathTest, IsNotSilentAtTheFirstByteAfterAPauseBetweenTwoLooks) {
  PathWatch watch(kSilence, kInterval);
  std::this_thread::sleep_for(2 * kSilence);
  const int off = 0;  // the acknowledgment comes after the look
  ASSERT_EQ(setsockopt(receiver_.get(), IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off), 0);
  send_byte();
  EXPECT_FALSE(watch.is_silent(sender_.get(), clock_.now()));
  std::this_thread::sleep_for(10 * kSilence);
  break_path();
  send_byte();
  EXPECT_FALSE(watch.is_silent(sender_.get(), clock_.now()));
}

// As in a thread that sleeps between two polls.
TEST_F(TcpPathTest, IsSilentAlsoIfLooksAreRare) {
  PathWatch watch(kSilence, kInterval);
  std::this_thread::sleep_for(2 * kSilence);
  break_path();
  send_byte();
  EXPECT_FALSE(watch.is_silent(sender_.get(), clock_.now()));
  std::this_thread::sleep_for(10 * kSilence);
  EXPECT_TRUE(watch.is_silent(sender_.get(), clock_.now()));
}

TEST_F(TcpPathTest, IsNotSilentWhileNothingWaits) {
  PathWatch watch(kSilence, kInterval);
  const TimePoint began = clock_.now();
  while (clock_.now() - began < 3 * kSilence) {
    EXPECT_FALSE(watch.is_silent(sender_.get(), clock_.now()));
    std::this_thread::sleep_for(kInterval);
  }
}

}  // namespace
}  // namespace dunlin::testing
