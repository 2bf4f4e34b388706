#include "runtime/flight/metrics.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/bootstrap/net.h"
#include "runtime/flight/metrics_server.h"
#include "tests/runtime/flight/record_support.h"
#include "tests/support/files.h"
#include "tests/support/ports.h"

namespace dunlin::flight::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Makes a socket and has `assign`, connect or bind, give it this address. Closed if that fails.
template <typename Assign>
Fd unix_socket(const std::string& path, Assign assign) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (assign(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    fd.reset();
  return fd;
}

Fd connect_to_socket(const std::string& path) {
  return unix_socket(path, connect);
}

std::string answer_to(const Fd& client, const std::string& request) {
  EXPECT_EQ(send(client.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t size = 0; (size = read(client.get(), buffer, sizeof buffer)) > 0;)
    answer.append(buffer, static_cast<std::size_t>(size));
  return answer;
}

class MetricsTest : public RecordTest {
 protected:
  std::unique_ptr<MetricsServer> serve(const MetricsAddress& address) {
    auto server = MetricsServer::start(address, [] { return std::string("some 1\n"); });
    EXPECT_TRUE(server.is_ok()) << server.status().to_string();
    return server ? std::move(server).value() : nullptr;
  }
};

TEST_F(MetricsTest, TellWhatARecordSays) {
  const auto made = recorder(Rank(3), 4);
  made->step(1);
  made->begin("all_reduce", 8);
  wait(*made, Rank(2), std::chrono::milliseconds(250));
  made->end("all_reduce", 8);
  made->step(2);
  made->bytes("shm", 12, 34);
  const std::string text = metrics_of({snapshot(*made)});
  EXPECT_THAT(text, HasSubstr("# TYPE dunlin_wait_seconds_total counter\n"
                              "dunlin_wait_seconds_total{dunlin_job=\"job\",rank=\"3\"} 0.25\n"));
  EXPECT_THAT(
      text,
      HasSubstr("dunlin_peer_wait_seconds_total{dunlin_job=\"job\",rank=\"3\",peer=\"2\"} 0.25\n"));
  EXPECT_THAT(text, HasSubstr("dunlin_operations_total{dunlin_job=\"job\",rank=\"3\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("dunlin_steps_total{dunlin_job=\"job\",rank=\"3\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("dunlin_rank_up{dunlin_job=\"job\",rank=\"3\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("dunlin_transport_put_bytes_total{dunlin_job=\"job\",rank=\"3\","
                              "transport=\"shm\"} 12\n"));
}

TEST_F(MetricsTest, EscapeWhatLabelsCannotHold) {
  Snapshot rank;
  rank.rank = Rank(0);
  rank.job = "a\"b\\c";
  EXPECT_THAT(metrics_of({rank}), HasSubstr("{dunlin_job=\"a\\\"b\\\\c\",rank=\"0\"}"));
}

TEST_F(MetricsTest, AreServedOnASocketOfThisUserOnly) {
  const std::string path = temporary_.file("metrics");
  auto server = serve({path, 0});
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0077, 0u);
  for (int i = 0; i < 3; ++i) {
    const std::string answer =
        answer_to(connect_to_socket(path), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.0 200 OK\r\n"));
    EXPECT_THAT(answer, HasSubstr("\r\n\r\nsome 1\n"));
  }
  server.reset();
  EXPECT_NE(stat(path.c_str(), &info), 0);
}

TEST_F(MetricsTest, AreServedOnALoopbackPort) {
  const bootstrap::Endpoint free{"127.0.0.1", dunlin::testing::free_port()};
  const auto server = serve({"", free.port});
  const SteadyClock clock;
  auto client = bootstrap::connect_to(free, clock.now() + std::chrono::minutes(1));
  ASSERT_TRUE(client.is_ok()) << client.status().to_string();
  const std::string request = "GET /metrics HTTP/1.1\r\n\r\n";
  ASSERT_EQ(send(client->get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  ASSERT_TRUE(bootstrap::wait_for(client->get(), POLLIN, clock.now() + std::chrono::minutes(1)));
  char buffer[15];
  ASSERT_EQ(recv(client->get(), buffer, sizeof buffer, MSG_WAITALL), 15);
  EXPECT_EQ(std::string(buffer, sizeof buffer), "HTTP/1.0 200 OK");
}

TEST_F(MetricsTest, ClientsCannotStopTheServer) {
  const std::string path = temporary_.file("metrics");
  const auto server = serve({path, 0});
  const Fd silent = connect_to_socket(path);  // is given up after a second
  ASSERT_TRUE(silent.is_open());
  {
    const Fd endless = connect_to_socket(path);
    const std::string request(100'000, 'x');
    (void)send(endless.get(), request.data(), request.size(), MSG_NOSIGNAL);
    char byte = 0;
    EXPECT_LE(read(endless.get(), &byte, 1), 0);  // is closed
  }
  EXPECT_THAT(answer_to(connect_to_socket(path), "GET /other HTTP/1.0\r\n\r\n"),
              StartsWith("HTTP/1.0 404"));
  EXPECT_THAT(answer_to(connect_to_socket(path), "GET / HTTP/1.0\r\n\r\n"),
              StartsWith("HTTP/1.0 200"));
}

TEST_F(MetricsTest, TakeThePlaceOfASocketThatNobodyServes) {
  const std::string path = temporary_.file("metrics");
  ASSERT_TRUE(unix_socket(path, bind).is_open()) << "and is closed at once";
  const auto server = serve({path, 0});
  ASSERT_NE(server, nullptr);
  const auto second = MetricsServer::start({path, 0}, [] { return std::string(); });
  EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
  const std::string file = dunlin::testing::written(temporary_.file("file"), "mine");
  EXPECT_EQ(MetricsServer::start({file, 0}, [] { return std::string(); }).status().code(),
            Code::kAlreadyExists);
  EXPECT_EQ(dunlin::testing::content_of(file), "mine");
}

TEST_F(MetricsTest, AFullQueueOfAnotherServerDoesNotBlock) {
  const std::string path = temporary_.file("metrics");
  const Fd other = unix_socket(path, bind);
  ASSERT_TRUE(other.is_open());
  ASSERT_EQ(listen(other.get(), 0), 0);
  const Fd client = connect_to_socket(path);  // takes the only place in the queue
  const auto server = MetricsServer::start({path, 0}, [] { return std::string(); });
  EXPECT_EQ(server.status().code(), Code::kAlreadyExists);
}

TEST_F(MetricsTest, TheServerSleepsWhileNoDescriptorIsLeft) {
  const std::string path = temporary_.file("metrics");
  const auto server = serve({path, 0});
  const Fd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next_free = dup(client.get());
  close(next_free);
  const rlimit none{static_cast<rlim_t>(next_free), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int connected =
      connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const auto used = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec * 1'000'000 + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_sec * 1'000'000 + usage.ru_stime.tv_usec;
  };
  const auto began = used();
  usleep(500'000);
  const auto spent = used() - began;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_EQ(connected, 0);
  EXPECT_LT(spent, 100'000);
  EXPECT_THAT(answer_to(client, "GET / HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.0 200"));
}

TEST_F(MetricsTest, AForkedChildLeavesTheServerToItsParent) {
  const std::string path = temporary_.file("metrics");
  auto made = recorder();
  ASSERT_TRUE(made->serve({path, 0}).is_ok());
  const pid_t child = fork();
  if (child == 0) {
    made.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(answer_to(connect_to_socket(path), "GET / HTTP/1.0\r\n\r\n"),
              StartsWith("HTTP/1.0 200"));
}

TEST(MetricsAddress, IsASocketOrAPort) {
  const auto socket = MetricsAddress::parse("unix:/run/%r.sock", Rank(3), 1);
  ASSERT_TRUE(socket.is_ok());
  EXPECT_EQ(socket->path, "/run/3.sock");
  const auto port = MetricsAddress::parse("9400", Rank(7), 3);
  ASSERT_TRUE(port.is_ok());
  EXPECT_EQ(port->port, 9403);
  for (const char* wrong :
       {"", "unix:", "0", "-1", "65536", "9223372036854775807", "9400x", "host:9400"})
    EXPECT_EQ(MetricsAddress::parse(wrong, Rank(0), 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(MetricsAddress::parse("host:9400", Rank(0), 0).status().to_string(),
            "invalid_argument: 'host:9400': give unix:PATH or a port from 1 to 65535");
  EXPECT_EQ(MetricsAddress::parse("65530", Rank(9), 8).status().to_string(),
            "invalid_argument: 65530: local rank 8 would listen at port 65538, and the last one is "
            "65535");
  EXPECT_FALSE(MetricsAddress::parse("9223372036854775807", Rank(1), 1).is_ok());
}

}  // namespace
}  // namespace dunlin::flight::testing
