// Endpoints: connections without a job, over each transport that this build has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/bootstrap/net.h"
#include "tests/support/ranks.h"
#include "transports/completion.h"
#include "transports/endpoint/blob.h"
#include "transports/endpoint/constants.h"
#include "transports/endpoint/endpoint.h"

namespace dunlin::testing {
namespace {

using ::testing::HasSubstr;
using transport::Completion;
using transport::Connection;
using transport::Endpoint;
using transport::LocalSlice;
using transport::MemoryId;
using transport::RemoteRegion;
using transport::RemoteSlice;

Duration time_limit() {
  return std::chrono::seconds(30) * timeout_factor();
}

Bytes text(std::string_view contents) {
  const auto bytes = as_bytes(contents);
  return {bytes.begin(), bytes.end()};
}

std::string to_text(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// An endpoint of this process, and memory that it has registered.
struct Side {
  explicit Side(const std::string& name, const std::string& transports = "shm",
                std::size_t size = 1 << 20) {
    config = Config::parse(Environment({{"DUNLIN_TRANSPORTS", transports}})).value();
    endpoint =
        Endpoint::create(config, clock, {.is_host_only = true, .greeting = text(name)}).value();
    memory = MemoryRegion::allocate(size).value();
    id = endpoint->register_memory(memory).value();
  }
  // Endings wait a little for peers that make no progress, so that one side goes on.
  ~Side() {
    if (partner == nullptr || partner->connection == nullptr) return;
    std::thread other([this] {
      const TimePoint limit = clock.now() + std::chrono::seconds(10);
      while (!is_over(*partner) && clock.now() < limit) partner->endpoint->progress();
    });
    connection.reset();
    other.join();
    partner->connection.reset();
  }
  static bool is_over(const Side& side) { return !side.connection->status().is_ok(); }

  Config config;
  SteadyClock clock;
  std::unique_ptr<Endpoint> endpoint;
  std::shared_ptr<MemoryRegion> memory;
  MemoryId id{};
  std::unique_ptr<Connection> connection;
  Side* partner = nullptr;  // of the side that ends first
};

// Progresses both sides until `done()` is true. Returns false after the limit.
bool progress_both(Side& a, Side& b, const std::function<bool()>& done) {
  const TimePoint limit = a.clock.now() + time_limit();
  while (!done()) {
    if (a.endpoint->progress() + b.endpoint->progress() == 0) std::this_thread::yield();
    if (a.clock.now() > limit) return false;
  }
  return true;
}

// Connects `b` to `a`.
[[nodiscard]] bool join(Side& a, Side& b, std::string_view greeting = "hello") {
  b.partner = &a;
  b.connection = b.endpoint->connect(a.endpoint->blob(), text(greeting)).value();
  return progress_both(a, b, [&] {
    if (a.connection == nullptr) a.connection = a.endpoint->accept();
    return a.connection != nullptr && !a.connection->status().is_busy() &&
           !b.connection->status().is_busy();
  });
}

RemoteRegion* import(Side& from, Side& owner, MemoryId id) {
  RemoteRegion* region = nullptr;
  EXPECT_TRUE(progress_both(from, owner, [&] {
    auto found = from.connection->remote(id);
    if (found) region = *found;
    EXPECT_TRUE(found.is_ok() || found.status().is_busy()) << found.status().to_string();
    return region != nullptr;
  }));
  return region;
}

class EndpointOver : public ::testing::TestWithParam<std::string> {};

TEST_P(EndpointOver, ConnectsAndGreets) {
  Side a("the listener", GetParam());
  Side b("the dialer", GetParam());
  EXPECT_LE(a.endpoint->blob().size(), Endpoint::kMaxBlob);
  ASSERT_TRUE(join(a, b, "it's me"));
  ASSERT_TRUE(a.connection->status().is_ok()) << a.connection->status().to_string();
  ASSERT_TRUE(b.connection->status().is_ok()) << b.connection->status().to_string();
  EXPECT_EQ(to_text(a.connection->greeting()), "it's me");
  EXPECT_EQ(to_text(b.connection->greeting()), "the listener");
  EXPECT_EQ(a.connection->transport(), GetParam());
}

// A side that is usable may make no progress for long, and keeps the other from nothing.
TEST_P(EndpointOver, BecomesUsableWithoutProgressOfASideThatIs) {
  for (const bool dialer_is_first : {false, true}) {
    Side a("a", GetParam());
    Side b("b", GetParam());
    b.partner = &a;
    Side& first = dialer_is_first ? b : a;
    Side& second = dialer_is_first ? a : b;
    b.connection = b.endpoint->connect(a.endpoint->blob(), {}).value();
    ASSERT_TRUE(progress_both(first, second, [&] {
      if (a.connection == nullptr) a.connection = a.endpoint->accept();
      return first.connection != nullptr && first.connection->status().is_ok();
    }));
    const TimePoint limit = second.clock.now() + time_limit();
    while (second.connection->status().is_busy() && second.clock.now() < limit)
      second.endpoint->progress();
    EXPECT_TRUE(second.connection->status().is_ok()) << dialer_is_first;
  }
}

TEST_P(EndpointOver, PutsGetsAndAnnouncesInOrder) {
  Side a("a", GetParam());
  Side b("b", GetParam());
  ASSERT_TRUE(join(a, b));
  RemoteRegion* const at_a = import(b, a, a.id);
  ASSERT_NE(at_a, nullptr);
  const std::size_t half = b.memory->size() / 2;
  for (std::uint64_t round = 1; round <= 20; ++round) {
    fill(b.memory->bytes().first(half), round);
    const LocalSlice from = b.connection->local(b.id, 0, half).value();
    const RemoteSlice to = at_a->slice(half, half).value();
    ASSERT_TRUE(
        progress_both(a, b, [&] { return b.connection->lane().put(from, to, nullptr).is_ok(); }));
    ASSERT_TRUE(b.connection->send(text(std::to_string(round))).is_ok());
    std::optional<Bytes> message;
    ASSERT_TRUE(
        progress_both(a, b, [&] { return (message = a.connection->receive()).has_value(); }));
    EXPECT_EQ(to_text(*message), std::to_string(round));
    EXPECT_TRUE(is_filled(a.memory->bytes().subspan(half), round))
        << "the message overtook the put";

    Completion read;
    const LocalSlice back = b.connection->local(b.id, half, half).value();
    ASSERT_TRUE(progress_both(
        a, b, [&] { return b.connection->lane().reads()->get(to, back, &read).is_ok(); }));
    ASSERT_TRUE(progress_both(a, b, [&] { return read.is_done(); }));
    EXPECT_TRUE(read.status().is_ok()) << read.status().to_string();
    EXPECT_TRUE(is_filled(b.memory->bytes().subspan(half), round));
  }
}

TEST_P(EndpointOver, MessagesOfAllSizesArriveInOrder) {
  Side a("a", GetParam());
  Side b("b", GetParam());
  ASSERT_TRUE(join(a, b));
  std::vector<std::size_t> sizes = {
      0, 1, 40, 41, 8191, 8192, 8193, 100'000, Connection::kMaxMessage};
  for (std::size_t i = 0; i < 300; ++i) sizes.push_back(i * 7 % 1000);
  std::vector<Bytes> sent;
  for (const std::size_t size : sizes) {
    Bytes message(size);
    fill(message, size);
    ASSERT_TRUE(progress_both(a, b, [&] { return a.connection->send(message).is_ok(); }));
    sent.push_back(std::move(message));
  }
  std::size_t received = 0;
  EXPECT_TRUE(progress_both(a, b, [&] {
    while (auto message = b.connection->receive()) {
      EXPECT_EQ(*message, sent[received]) << "message " << received;
      ++received;
    }
    return received == sent.size();
  }));
  EXPECT_EQ(a.connection->send(Bytes(Connection::kMaxMessage + 1)).code(), Code::kOutOfRange);
}

TEST_P(EndpointOver, AReaderThatDoesNotReadHoldsUpTheSender) {
  Side a("a", GetParam());
  Side b("b", GetParam());
  ASSERT_TRUE(join(a, b));
  const Bytes message(std::size_t{4} << 20);
  std::size_t sent = 0;
  for (Status status; !status.is_busy(); ++sent) {
    ASSERT_LT(sent, 100U) << "nothing bounds what waits";
    for (int turn = 0; turn < 1000; ++turn) a.endpoint->progress(), b.endpoint->progress();
    status = a.connection->send(message);
    ASSERT_TRUE(status.is_ok() || status.is_busy()) << status.to_string();
    if (status.is_busy()) break;
  }
  std::size_t received = 0;
  EXPECT_TRUE(progress_both(a, b, [&] {
    while (b.connection->receive()) ++received;
    return received == sent;
  }));
}

TEST_P(EndpointOver, TheLastMessageArrivesBeforeTheEnd) {
  Side a("a", GetParam());
  Side b("b", GetParam());
  ASSERT_TRUE(join(a, b));
  ASSERT_TRUE(b.connection->send(Bytes(50'000)).is_ok());
  ASSERT_TRUE(b.connection->send(text("farewell")).is_ok());
  std::thread reader([&] {
    const TimePoint limit = a.clock.now() + time_limit();
    while (a.connection->status().is_ok() && a.clock.now() < limit) a.endpoint->progress();
  });
  b.connection.reset();
  reader.join();
  EXPECT_EQ(a.connection->status().code(), Code::kClosed);
  EXPECT_THAT(std::string(a.connection->status().message()), HasSubstr("left"));
  EXPECT_EQ(a.connection->receive()->size(), 50'000U);
  EXPECT_EQ(to_text(*a.connection->receive()), "farewell");
  EXPECT_FALSE(a.connection->receive());
  EXPECT_EQ(a.connection->send(text("too late")).code(), Code::kClosed);
}

// The dialer sends and leaves as soon as its end is usable, which may be before the listener's is.
TEST_P(EndpointOver, AMessageOfAPeerThatLeavesAtOnceArrives) {
  Side a("a", GetParam());
  Side b("b", GetParam());
  b.connection = b.endpoint->connect(a.endpoint->blob(), {}).value();
  ASSERT_TRUE(progress_both(a, b, [&] {
    if (a.connection == nullptr) a.connection = a.endpoint->accept();
    return b.connection->status().is_ok();
  }));
  ASSERT_TRUE(b.connection->send(text("hello and farewell")).is_ok());
  std::thread reader([&] {
    const TimePoint limit = a.clock.now() + time_limit();
    while (a.clock.now() < limit &&
           (a.connection->status().is_ok() || a.connection->status().is_busy()))
      a.endpoint->progress();
  });
  b.connection.reset();
  reader.join();
  EXPECT_EQ(a.connection->status().code(), Code::kClosed) << a.connection->status().to_string();
  const auto message = a.connection->receive();
  ASSERT_TRUE(message);
  EXPECT_EQ(to_text(*message), "hello and farewell");
}

TEST_P(EndpointOver, MemoryThatIsNotRegisteredIsRefused) {
  Side a("a", GetParam());
  Side b("b", GetParam());
  ASSERT_TRUE(join(a, b));
  Status refusal = Status::busy();
  ASSERT_TRUE(progress_both(a, b, [&] {
    refusal = b.connection->remote(MemoryId(4711)).status();
    return !refusal.is_busy();
  }));
  EXPECT_EQ(refusal.code(), Code::kNotFound);
  EXPECT_THAT(std::string(refusal.message()), HasSubstr("4711"));
  EXPECT_EQ(b.connection->local(MemoryId(4711), 0, 1).status().code(), Code::kNotFound);
  EXPECT_EQ(b.connection->local(b.id, b.memory->size(), 1).status().code(), Code::kOutOfRange);

  // What is deregistered later cannot be written any more, and the connection goes on.
  RemoteRegion* const region = import(b, a, a.id);
  ASSERT_NE(region, nullptr);
  ASSERT_TRUE(a.endpoint->deregister(a.id).is_ok());
  EXPECT_EQ(a.endpoint->deregister(a.id).code(), Code::kNotFound);
  ASSERT_TRUE(b.connection->send(text("still there")).is_ok());
  std::optional<Bytes> message;
  EXPECT_TRUE(progress_both(a, b, [&] { return (message = a.connection->receive()).has_value(); }));
}

TEST(EndpointTest, ConnectsToItself) {
  Side a("a");
  a.connection = a.endpoint->connect(a.endpoint->blob(), text("me")).value();
  std::unique_ptr<Connection> other;
  ASSERT_TRUE(progress_both(a, a, [&] {
    if (other == nullptr) other = a.endpoint->accept();
    return other != nullptr && other->status().is_ok() && a.connection->status().is_ok();
  }));
  ASSERT_TRUE(other->send(text("echo")).is_ok());
  std::optional<Bytes> message;
  EXPECT_TRUE(progress_both(a, a, [&] { return (message = a.connection->receive()).has_value(); }));
}

// Each of some endpoints connects to each other one.
TEST(EndpointTest, ManyEndpointsFormAClique) {
  constexpr int kSides = 5;
  std::vector<std::unique_ptr<Side>> sides;
  for (int i = 0; i < kSides; ++i)
    sides.push_back(std::make_unique<Side>(std::to_string(i), "shm", 4096));
  std::vector<std::vector<std::unique_ptr<Connection>>> connections(kSides);
  for (int i = 0; i < kSides; ++i) {
    for (int j = 0; j < i; ++j)
      connections[i].push_back(
          sides[i]->endpoint->connect(sides[j]->endpoint->blob(), text(std::to_string(i))).value());
  }
  const TimePoint limit = sides[0]->clock.now() + time_limit();
  for (bool is_complete = false; !is_complete;) {
    ASSERT_LT(sides[0]->clock.now(), limit);
    is_complete = true;
    for (int i = 0; i < kSides; ++i) {
      sides[i]->endpoint->progress();
      while (auto accepted = sides[i]->endpoint->accept())
        connections[i].push_back(std::move(accepted));
      is_complete &= connections[i].size() == kSides - 1;
      for (const auto& connection : connections[i]) {
        EXPECT_TRUE(connection->status().is_ok() || connection->status().is_busy())
            << connection->status().to_string();
        is_complete &= connection->status().is_ok();
      }
    }
  }
  for (int i = 0; i < kSides; ++i) {
    for (const auto& connection : connections[i])
      ASSERT_TRUE(connection->send(text("from " + std::to_string(i))).is_ok());
  }
  for (int i = 0; i < kSides; ++i) {
    for (const auto& connection : connections[i]) {
      std::optional<Bytes> message;
      while (!(message = connection->receive())) {
        ASSERT_LT(sides[0]->clock.now(), limit);
        for (const auto& side : sides) side->endpoint->progress();
      }
      EXPECT_EQ(to_text(*message), "from " + to_text(connection->greeting()));
    }
  }
}

std::vector<std::string> transports_here() {
#ifdef DUNLIN_HAVE_UCX
  return {"shm", "tcp", "ucx"};
#else
  return {"shm", "tcp"};
#endif
}

INSTANTIATE_TEST_SUITE_P(, EndpointOver, ::testing::ValuesIn(transports_here()),
                         [](const auto& each) { return each.param; });

// The peer is a process of its own.
class EndpointPeer {
 public:
  // The peer connects to `a`, calls `body`, and waits to be killed.
  EndpointPeer(const Bytes& blob, const std::string& transports) {
    pid_ = fork();
    if (pid_ != 0) return;
    Side b("b", transports);
    b.connection = b.endpoint->connect(blob, text("process")).value();
    for (;;) b.endpoint->progress();
  }
  ~EndpointPeer() { kill(); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
};

class EndpointProcess : public ::testing::TestWithParam<std::string> {};

TEST_P(EndpointProcess, ADeathEndsItsConnectionOnly) {
  Side a("a", GetParam());
  const auto connect = [&](std::unique_ptr<EndpointPeer>& peer) {
    std::unique_ptr<Connection> made;
    peer = std::make_unique<EndpointPeer>(a.endpoint->blob(), GetParam());
    EXPECT_TRUE(a.endpoint
                    ->wait(
                        [&]() -> Status {
                          if (made == nullptr) made = a.endpoint->accept();
                          return made == nullptr ? Status::busy() : made->status();
                        },
                        time_limit())
                    .is_ok());
    return made;
  };
  std::unique_ptr<EndpointPeer> first_peer, second_peer;
  const auto first = connect(first_peer);
  const auto second = connect(second_peer);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  // A get is in progress or posted when the peer dies.
  first_peer->kill();
  const Status ended = a.endpoint->wait(
      [&] { return first->status().is_ok() ? Status::busy() : first->status(); }, time_limit());
  EXPECT_EQ(ended.code(), Code::kPeerDead) << ended.to_string();
  EXPECT_TRUE(second->status().is_ok());
  EXPECT_TRUE(second->send(text("still there")).is_ok());
  EXPECT_FALSE(first->send(text("not there")).is_ok());
  EXPECT_FALSE(first->lane().flush(transport::Visibility::kRemote, nullptr).is_ok());
  // And a new one can come.
  const auto third = connect(first_peer);
  EXPECT_TRUE(third->status().is_ok());
}

INSTANTIATE_TEST_SUITE_P(, EndpointProcess, ::testing::Values("shm", "tcp"),
                         [](const auto& each) { return each.param; });

TEST(EndpointBlob, DamagedBlobsAreRefused) {
  Side a("a");
  const Bytes blob = a.endpoint->blob();
  const auto refusal = [&](const Bytes& bytes) {
    return a.endpoint->connect(bytes, {}).status().code();
  };
  for (std::size_t size = 0; size < blob.size(); ++size)
    EXPECT_EQ(refusal(Bytes(blob.begin(), blob.begin() + size)), Code::kCorrupted) << size;
  Bytes longer = blob;
  longer.push_back(std::byte{0});
  EXPECT_EQ(refusal(longer), Code::kCorrupted);
  Bytes other_version = blob;
  other_version[4] = std::byte{99};
  EXPECT_EQ(refusal(other_version), Code::kCorrupted);
  EXPECT_EQ(a.endpoint->connect(blob, Bytes(Endpoint::kMaxGreeting + 1)).status().code(),
            Code::kInvalidArgument);
}

TEST(EndpointBlob, AWrongKeyIsRefusedOnBothSides) {
  Side a("a");
  Side b("b");
  auto blob = transport::endpoint::Blob::decode(a.endpoint->blob()).value();
  blob.key[7] ^= std::byte{1};
  b.connection = b.endpoint->connect(blob.encode(), {}).value();
  ASSERT_TRUE(progress_both(a, b, [&] { return !b.connection->status().is_busy(); }));
  EXPECT_EQ(b.connection->status().code(), Code::kUnavailable);
  EXPECT_THAT(std::string(b.connection->status().message()), HasSubstr("127.0.0.1"));
  EXPECT_EQ(a.endpoint->accept(), nullptr);
}

TEST(EndpointBlob, NobodyListensThere) {
  Side b("b");
  Bytes blob;
  {
    Side a("a");
    blob = a.endpoint->blob();
  }
  b.connection = b.endpoint->connect(blob, {}).value();
  ASSERT_TRUE(progress_both(b, b, [&] { return !b.connection->status().is_busy(); }));
  EXPECT_EQ(b.connection->status().code(), Code::kUnavailable);
}

// A connection to a program that accepts connections and never answers ends at once when its owner
// does not want it any more.
TEST(EndpointBlob, AnUnansweredHandshakeEndsWithItsConnection) {
  Side b("b");
  bootstrap::Endpoint place{"127.0.0.1", 0};
  const Fd silent = bootstrap::listen_on(place).value();
  auto blob = transport::endpoint::Blob::decode(b.endpoint->blob()).value();
  blob.port = place.port;
  blob.key[3] ^= std::byte{1};  // another endpoint than b
  b.connection = b.endpoint->connect(blob.encode(), {}).value();
  const TimePoint began = b.clock.now();
  ASSERT_TRUE(bootstrap::wait_for(silent.get(), POLLIN, began + time_limit()));
  const Fd accepted(accept(silent.get(), nullptr, nullptr));
  char hello = 0;
  ASSERT_EQ(recv(accepted.get(), &hello, 1, MSG_PEEK), 1) << "it waits for the answer to this";
  b.connection.reset();
  EXPECT_LT(b.clock.now() - began, transport::endpoint::kHandshakeTime);
}

// Strangers that send nothing, or anything, keep nobody out.
TEST(EndpointStrangers, DoNotKeepPeersOut) {
  Side a("a");
  Side b("b");
  const auto blob = transport::endpoint::Blob::decode(a.endpoint->blob()).value();
  const TimePoint limit = a.clock.now() + time_limit();
  std::vector<Fd> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(bootstrap::connect_to({"127.0.0.1", blob.port}, limit).value());
    const Bytes garbage(static_cast<std::size_t>(i % 50), std::byte{0x5a});
    ::send(strangers.back().get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  }
  ASSERT_TRUE(join(a, b));
  EXPECT_TRUE(a.connection->status().is_ok()) << a.connection->status().to_string();
  EXPECT_TRUE(b.connection->status().is_ok()) << b.connection->status().to_string();
  EXPECT_EQ(a.endpoint->accept(), nullptr);
}

}  // namespace
}  // namespace dunlin::testing
