// The tcp transport's ciphers, its handshake, and what its listener does with strangers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "runtime/log.h"
#include "tests/support/ranks.h"
#include "transports/tcp/cipher.h"
#include "transports/tcp/listener.h"
#include "transports/tcp/socket.h"

namespace dunlin::testing {
namespace {

using namespace transport::tcp;
using ::testing::HasSubstr;
using transport::LaneKind;

constexpr std::uint64_t kToken = 4711;

JobKey key_of(int seed) {
  JobKey key;
  fill(key, static_cast<std::uint64_t>(seed));
  return key;
}

class TcpCipherTest : public ::testing::TestWithParam<CipherKind> {
 protected:
  void SetUp() override {
    ASSERT_GE(sodium_init(), 0);
    if (GetParam() == CipherKind::kAes256Gcm && !has_aes())
      GTEST_SKIP() << "this CPU has no AES instructions";
  }
  static constexpr std::size_t kSize = 1000;
  using Frame = std::vector<std::byte>;
  Frame seal(Cipher& cipher, std::uint64_t seed) {
    Frame plain(kSize);
    fill(plain, seed);
    Frame sealed(kSize + kTagBytes);
    EXPECT_TRUE(cipher.seal(header_, plain.data(), kSize, sealed.data()));
    return sealed;
  }
  bool opens(Cipher& cipher, const Frame& sealed, std::uint64_t seed) {
    Frame plain(kSize);
    if (!cipher.open(header_, sealed.data(), kSize, plain.data())) return false;
    EXPECT_TRUE(is_filled(plain, seed));
    return true;
  }
  std::array<std::byte, 8> header_{};
  const Key key_{1, 2, 3};
};

TEST_P(TcpCipherTest, OpensWhatWasSealedInItsOrderOnly) {
  Cipher sender(GetParam(), Cipher::Use::kSeal, key_);
  Cipher receiver(GetParam(), Cipher::Use::kOpen, key_);
  const Frame first = seal(sender, 1);
  const Frame second = seal(sender, 2);
  EXPECT_FALSE(opens(receiver, second, 2)) << "out of order";
  EXPECT_TRUE(opens(receiver, first, 1));
  EXPECT_FALSE(opens(receiver, first, 1)) << "replayed";
  for (std::size_t at = 0; at < second.size(); at += 7) {
    Frame flipped = second;
    flipped[at] ^= std::byte{0x10};
    EXPECT_FALSE(opens(receiver, flipped, 2)) << at;
  }
  header_[1] = std::byte{1};
  EXPECT_FALSE(opens(receiver, second, 2)) << "another header";
  header_[1] = std::byte{0};
  EXPECT_TRUE(opens(receiver, second, 2));
}

TEST_P(TcpCipherTest, TheKeyChangesAtBothEndsAtTheSameFrame) {
  Cipher sender(GetParam(), Cipher::Use::kSeal, key_);
  Cipher receiver(GetParam(), Cipher::Use::kOpen, key_);
  std::byte plain{5};
  std::array<std::byte, 1 + kTagBytes> sealed;
  for (std::uint64_t frame = 0; frame < 2 * kFramesPerKey + 10; ++frame) {
    ASSERT_TRUE(sender.seal(header_, &plain, 1, sealed.data()));
    std::byte opened{};
    ASSERT_TRUE(receiver.open(header_, sealed.data(), 1, &opened)) << frame;
    ASSERT_EQ(opened, plain);
  }
}

TEST_P(TcpCipherTest, BothLibrariesSealTheSameBytes) {
  if (!Libcrypto::is_built_in()) GTEST_SKIP() << "this build is without libcrypto";
  constexpr auto kLibsodium = Cipher::Library::kLibsodium;
  Cipher fast(GetParam(), Cipher::Use::kSeal, key_);
  Cipher slow(GetParam(), Cipher::Use::kSeal, key_, kLibsodium);
  Cipher fast_receiver(GetParam(), Cipher::Use::kOpen, key_);
  Cipher slow_receiver(GetParam(), Cipher::Use::kOpen, key_, kLibsodium);
  for (std::uint64_t frame = 0; frame < kFramesPerKey + 10; ++frame) {  // beyond a change of keys
    header_[0] = static_cast<std::byte>(frame);
    const Frame sealed = seal(fast, frame);
    ASSERT_EQ(sealed, seal(slow, frame)) << frame;
    ASSERT_TRUE(opens(fast_receiver, sealed, frame)) << frame;
    ASSERT_TRUE(opens(slow_receiver, sealed, frame)) << frame;
  }
}

TEST_P(TcpCipherTest, NothingIsLeftOfAFrameThatDoesNotOpen) {
  Cipher sender(GetParam(), Cipher::Use::kSeal, key_);
  Cipher receiver(GetParam(), Cipher::Use::kOpen, key_);
  Frame sealed = seal(sender, 1);
  sealed[7] ^= std::byte{1};
  Frame plain(kSize, std::byte{9});
  EXPECT_FALSE(receiver.open(header_, sealed.data(), kSize, plain.data()));
  const Frame unchanged(kSize, std::byte{9});
  EXPECT_THAT(plain, ::testing::AnyOf(Frame(kSize), unchanged));
}

INSTANTIATE_TEST_SUITE_P(Ciphers, TcpCipherTest,
                         ::testing::Values(CipherKind::kAes256Gcm, CipherKind::kChaCha20Poly1305),
                         [](const auto& kind) {
                           return kind.param == CipherKind::kAes256Gcm ? "aes" : "chacha";
                         });

class Lines final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::vector<std::string> lines;

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    lines.emplace_back(message.payload.data(), message.payload.size());
  }
  void flush_() override {}
};

// A listener of rank 1 in a job of 2, and clients that misbehave.
class TcpListenerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_GE(sodium_init(), 0);
    clock_.set(TimePoint(std::chrono::hours(1)));
    poller_ = Poller::create().value();
    const Listener::Options options{{key_, wants_encryption_}, Rank(1), 2, kToken};
    listener_ = std::make_unique<Listener>(options, *poller_, clock_, [this](Admitted admitted) {
      admitted_.push_back(std::move(admitted));
      return Status::ok();
    });
    ASSERT_TRUE(listener_->listen_at(interface_addresses("lo").value()).is_ok());
    logger().sinks().push_back(log_);
  }
  void TearDown() override { std::erase(logger().sinks(), log_); }

  static Purpose purpose() {
    return {Rank(0), Rank(1), LaneKind::kControl, kToken, {17, 3, 5, 128}};
  }
  Fd connect() {
    Fd socket = connect_to(listener_->endpoints().front()).value();
    pollfd entry{socket.get(), POLLOUT, 0};
    EXPECT_EQ(poll(&entry, 1, 20'000), 1);
    EXPECT_TRUE(connect_outcome(socket.get()).is_ok());
    return socket;
  }
  void turn() {
    poller_->poll();
    listener_->settle();
  }
  // Turns the listener until the client has read something or the end of the stream.
  template <typename T>
  Status read(const Fd& socket, T& to) {
    std::size_t done = 0;
    const TimePoint deadline = SteadyClock().now() + std::chrono::seconds(20);
    for (;;) {
      turn();
      Status status = receive_whole(socket.get(), &to, sizeof to, done);
      if (!status.is_busy()) return status;
      if (SteadyClock().now() > deadline) return {Code::kDeadlineExceeded, "nothing arrived"};
    }
  }
  bool is_refused(const Fd& socket) {
    std::byte byte;
    const Code code = read(socket, byte).code();
    return code == Code::kClosed || code == Code::kIoError || code == Code::kPeerDead;
  }
  template <typename T>
  void send(const Fd& socket, const T& what, std::size_t size = sizeof(T)) {
    EXPECT_TRUE(send_whole(socket.get(), &what, size).is_ok());
  }
  // Carries out the client's part. Returns whether it was admitted.
  bool joins(const Purpose& purpose, const JobKey& key, bool wants_encryption = true) {
    const Fd socket = connect();
    ClientHandshake client({key, wants_encryption}, purpose);
    send(socket, client.hello());
    ServerHello answer{};
    if (!read(socket, answer).is_ok()) return false;
    auto proof = client.on_answer(answer);
    if (!proof) return false;
    send(socket, *proof);
    const std::size_t before = admitted_.size();
    const TimePoint deadline = SteadyClock().now() + std::chrono::seconds(20);
    while (admitted_.size() == before && SteadyClock().now() < deadline) turn();
    if (admitted_.size() == before) return false;
    const SessionKeys& there = admitted_.back().keys;
    EXPECT_EQ(there.cipher, client.keys().cipher);
    EXPECT_EQ(there.to_client, client.keys().to_client);
    EXPECT_EQ(there.to_server, client.keys().to_server);
    EXPECT_NE(there.to_server, there.to_client);
    return true;
  }

  bool wants_encryption_ = true;
  const JobKey key_ = key_of(1);
  ManualClock clock_;
  std::unique_ptr<Poller> poller_;
  std::unique_ptr<Listener> listener_;
  std::vector<Admitted> admitted_;
  std::shared_ptr<Lines> log_ = std::make_shared<Lines>();
};

TEST_F(TcpListenerTest, AdmitsAMemberOfTheJob) {
  ASSERT_TRUE(joins(purpose(), key_));
  const Purpose& seen = admitted_.front().purpose;
  EXPECT_EQ(seen.source, Rank(0));
  EXPECT_EQ(seen.lane, LaneKind::kControl);
  EXPECT_EQ(seen.origin.token, 17u);
  EXPECT_EQ(seen.origin.incarnation, 3u);
  EXPECT_EQ(seen.origin.attempt, 5u);
  EXPECT_EQ(seen.origin.depth, 128u);
  EXPECT_FALSE(listener_->has_guests());
  EXPECT_TRUE(log_->lines.empty());
}

TEST_F(TcpListenerTest, RefusesWhoDoesNotBelong) {
  EXPECT_FALSE(joins(purpose(), key_of(2))) << "another job's key";
  Purpose wrong = purpose();
  wrong.source = Rank(2);
  EXPECT_FALSE(joins(wrong, key_)) << "there is no rank 2";
  wrong = purpose();
  wrong.target = Rank(0);
  EXPECT_FALSE(joins(wrong, key_)) << "it looks for another rank";
  wrong = purpose();
  wrong.target_token = kToken + 1;
  EXPECT_FALSE(joins(wrong, key_)) << "it looks for a former process";
  wrong = purpose();
  wrong.origin.depth = 0;
  EXPECT_FALSE(joins(wrong, key_)) << "its lane cannot hold an operation";
  EXPECT_TRUE(admitted_.empty());
  // One line at once, and one for all the others a second later.
  ASSERT_EQ(log_->lines.size(), 1u);
  EXPECT_THAT(log_->lines[0], HasSubstr("does not know the job's secret"));
  clock_.advance(kRefusalLogInterval);
  turn();
  ASSERT_EQ(log_->lines.size(), 2u);
  EXPECT_THAT(log_->lines[1], HasSubstr("refused 4 connections"));
  EXPECT_TRUE(joins(purpose(), key_));
}

TEST_F(TcpListenerTest, RefusesGarbageAndChangedGreetings) {
  std::array<std::byte, sizeof(ClientHello)> garbage;
  fill(garbage, 9);
  const Fd socket = connect();
  send(socket, garbage);
  EXPECT_TRUE(is_refused(socket));
  for (std::size_t at = 0; at < sizeof(ClientHello); at += 5) {
    const Fd other = connect();
    ClientHandshake client({key_, true}, purpose());
    ClientHello hello = client.hello();
    reinterpret_cast<unsigned char*>(&hello)[at] ^= 4;
    send(other, hello);
    EXPECT_TRUE(is_refused(other)) << at;
  }
  EXPECT_TRUE(admitted_.empty());
}

TEST_F(TcpListenerTest, ARecordedGreetingIsOfNoUse) {
  ClientHandshake client({key_, true}, purpose());
  const Fd first = connect();
  send(first, client.hello());
  ServerHello answer{};
  ASSERT_TRUE(read(first, answer).is_ok());
  const ClientProof recorded = client.on_answer(answer).value();
  // It does not even cost a key exchange.
  const Fd second = connect();
  send(second, client.hello());
  EXPECT_TRUE(is_refused(second));
  EXPECT_TRUE(admitted_.empty());
  send(first, recorded);
  while (admitted_.empty()) turn();
}

TEST_F(TcpListenerTest, AProofOfAnotherConnectionIsOfNoUse) {
  ClientProof recorded{};
  for (const bool is_first : {true, false}) {
    ClientHandshake client({key_, true}, purpose());
    const Fd socket = connect();
    send(socket, client.hello());
    ServerHello answer{};
    ASSERT_TRUE(read(socket, answer).is_ok());
    if (is_first) recorded = client.on_answer(answer).value();
    if (is_first) continue;
    send(socket, recorded);
    EXPECT_TRUE(is_refused(socket));
  }
  EXPECT_TRUE(admitted_.empty());
}

TEST_F(TcpListenerTest, TheClientChecksTheServer) {
  const Fd socket = connect();
  ClientHandshake client({key_, true}, purpose());
  send(socket, client.hello());
  ServerHello answer{};
  ASSERT_TRUE(read(socket, answer).is_ok());
  for (std::size_t at = 0; at < sizeof answer; ++at) {
    ServerHello changed = answer;
    reinterpret_cast<unsigned char*>(&changed)[at] ^= 1;
    // Two public keys that differ in the unused highest bit still make different transcripts.
    EXPECT_EQ(client.on_answer(changed).status().code(), Code::kPermissionDenied) << at;
  }
  EXPECT_TRUE(client.on_answer(answer).is_ok());
}

TEST_F(TcpListenerTest, WhoIsSilentOrSlowIsRefusedInTime) {
  const Fd silent = connect();
  const Fd slow = connect();
  ClientHandshake client({key_, true}, purpose());
  send(slow, client.hello(), sizeof(ClientHello) - 1);
  for (int i = 0; i < 100; ++i) turn();
  EXPECT_TRUE(listener_->has_guests());
  clock_.advance(kGuestTimeout);
  EXPECT_TRUE(is_refused(silent));
  EXPECT_TRUE(is_refused(slow));
  EXPECT_FALSE(listener_->has_guests());
}

// What arrived while this process did nothing counts, however late it looks.
TEST_F(TcpListenerTest, AProcessThatWasStoppedDoesNotRefuseItsPeers) {
  const Fd socket = connect();
  ClientHandshake client({key_, true}, purpose());
  turn();  // it is accepted
  while (!listener_->has_guests()) turn();
  send(socket, client.hello());
  clock_.advance(10 * kGuestTimeout);
  ServerHello answer{};
  ASSERT_TRUE(read(socket, answer).is_ok());
}

// However many there are: the clock stands still.
TEST_F(TcpListenerTest, SilentStrangersDoNotKeepAMemberOut) {
  std::vector<Fd> crowd;
  for (std::size_t i = 0; i <= kMostSilentGuests; ++i) {
    crowd.push_back(connect());
    turn();
  }
  EXPECT_TRUE(is_refused(crowd.front()));
  std::byte byte;
  std::size_t done = 0;
  EXPECT_TRUE(receive_whole(crowd.back().get(), &byte, 1, done).is_busy());
  EXPECT_TRUE(joins(purpose(), key_));
}

TEST_F(TcpListenerTest, ACrowdOfMembersGetsTimeForItsProofs) {
  constexpr std::size_t kCrowd = kMostGreetedGuests + 1;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < 2 * kCrowd + 100) GTEST_SKIP() << "too few descriptors";
  limit.rlim_cur = std::max<rlim_t>(limit.rlim_cur, 2 * kCrowd + 100);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<Fd> crowd;
  for (std::size_t i = 0; i < kCrowd; ++i) {
    ClientHandshake client({key_, true}, purpose());
    crowd.push_back(connect());
    send(crowd.back(), client.hello());
    turn();
  }
  ServerHello answer{};
  ASSERT_TRUE(read(crowd.front(), answer).is_ok());
  ASSERT_TRUE(read(crowd[kCrowd - 2], answer).is_ok());
  std::byte byte;
  std::size_t done = 0;
  for (int i = 0; i < 100; ++i) turn();
  EXPECT_TRUE(receive_whole(crowd.front().get(), &byte, 1, done).is_busy()) << "it still has time";
  clock_.advance(kGuestGrace);
  EXPECT_TRUE(is_refused(crowd.front()));
  EXPECT_TRUE(read(crowd.back(), answer).is_ok());
}

TEST_F(TcpListenerTest, OneEndThatWantsEncryptionIsEnough) {
  ASSERT_TRUE(joins(purpose(), key_, false));
  EXPECT_NE(admitted_.back().keys.cipher, CipherKind::kNone);
}

class TcpPlainListenerTest : public TcpListenerTest {
 protected:
  TcpPlainListenerTest() { wants_encryption_ = false; }
};

TEST_F(TcpPlainListenerTest, BothEndsMaySwitchEncryptionOff) {
  ASSERT_TRUE(joins(purpose(), key_, true));
  EXPECT_NE(admitted_.back().keys.cipher, CipherKind::kNone);
  ASSERT_TRUE(joins(purpose(), key_, false));
  EXPECT_EQ(admitted_.back().keys.cipher, CipherKind::kNone);
  EXPECT_FALSE(joins(purpose(), key_of(2), false)) << "they prove themselves all the same";
}

TEST(TcpAddress, SurvivesItsEncodingAndNothingElseDoes) {
  Address address;
  address.token = 5;
  address.cells = 16;
  address.wants_encryption = false;
  address.host = "here";
  address.endpoints = interface_addresses("lo").value();
  Bytes encoded = address.encode();
  const Address decoded = Address::decode(encoded).value();
  EXPECT_EQ(decoded.token, 5u);
  EXPECT_EQ(decoded.host, "here");
  EXPECT_EQ(decoded.endpoints, address.endpoints);
  EXPECT_FALSE(decoded.reachable_from("here").empty());
  for (std::size_t size = 0; size < encoded.size(); ++size) {
    EXPECT_FALSE(Address::decode(std::span(encoded).first(size)).is_ok()) << size;
  }
  encoded[0] = std::byte{99};
  EXPECT_EQ(Address::decode(encoded).status().code(), Code::kUnavailable);
  EXPECT_THAT(interface_addresses("none").status().to_string(), HasSubstr("no interface 'none'"));
}

}  // namespace
}  // namespace dunlin::testing
