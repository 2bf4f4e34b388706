// How the shm transport passes descriptors between PID namespaces (transports/shm/handover.h): what
// peers get, and what strangers don't.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/no_threads.h"
#include "tests/support/temp_folder.h"
#include "transports/shm/descriptor_client.h"
#include "transports/shm/descriptor_server.h"
#include "transports/shm/peer_process.h"

namespace dunlin::testing {
namespace {

namespace shm = transport::shm;
using ::testing::HasSubstr;

constexpr shm::OfferKey kRegion = 7;

JobKey key_of(char letter) {
  JobKey key;
  key.fill(std::byte(letter));
  return key;
}

// A memfd that holds a text.
Fd file_with(const std::string& text) {
  Fd file(memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(pwrite(file.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return file;
}

std::string content_of(const Fd& file) {
  char text[64] = {};
  EXPECT_GE(pread(file.get(), text, sizeof text - 1, 0), 0);
  return text;
}

// A connection of a process that does not know the protocol's key.
Fd stranger_at(const shm::DescriptorServer& server, const std::string& folder = "") {
  const auto address = shm::make_socket_address(server.place().name, folder).value();
  Fd made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(made.get(), address.get(), address.size), 0);
  return made;
}

bool await_input(const Fd& socket) {
  pollfd entry{socket.get(), POLLIN, 0};
  return poll(&entry, 1, 60'000) == 1;
}

class Handover : public ::testing::Test {
 protected:
  const JobKey key_ = key_of('k');
  const Fd file_ = file_with("shared");
  std::unique_ptr<shm::DescriptorServer> server_ = shm::DescriptorServer::create(key_, "").value();
  void SetUp() override { server_->offer(kRegion, file_.get()); }
  std::unique_ptr<shm::DescriptorClient> connect() const {
    return shm::DescriptorClient::connect(key_, server_->place(), "").value();
  }
};

TEST_F(Handover, APeerGetsWhatIsOfferedAndNothingElse) {
  const auto client = connect();
  const Fd got = client->fetch(kRegion).value();
  EXPECT_EQ(content_of(got), "shared");
  EXPECT_EQ(fcntl(got.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(client->fetch(kRegion + 1).status().code(), Code::kNotFound);
  EXPECT_EQ(client->fetch(shm::kMemoryOffer).status().code(), Code::kNotFound);
  server_->withdraw(kRegion);
  EXPECT_EQ(client->fetch(kRegion).status().code(), Code::kNotFound);
  EXPECT_EQ(content_of(got), "shared");
}

TEST_F(Handover, TheServersEndIsAnErrorAndNoWait) {
  const auto client = connect();
  const shm::HandoverPlace place = server_->place();
  server_.reset();
  EXPECT_FALSE(client->fetch(kRegion).is_ok());
  EXPECT_EQ(client->fetch(kRegion).status().code(), Code::kClosed);
  EXPECT_EQ(shm::DescriptorClient::connect(key_, place, "").status().code(), Code::kUnavailable);
}

TEST_F(Handover, AStrangerWithAnotherKeyGetsNoDescriptor) {
  const Fd stranger = stranger_at(*server_);
  shm::Challenge challenge;
  ASSERT_TRUE(await_input(stranger));
  ASSERT_TRUE(shm::receive_message(stranger.get(), challenge).is_ok());
  shm::Response response{.nonce = bootstrap::random_nonce()};
  const std::string name = server_->place().name;
  response.proof =
      shm::prove(key_of('x'), {shm::HandoverRole::kPeer, name, challenge.nonce, response.nonce});
  ASSERT_TRUE(shm::send_message(stranger.get(), response).is_ok());
  // It may ask at once; the server has closed the connection then, or does so now.
  (void)shm::send_message(stranger.get(), shm::OfferRequest{.key = kRegion});
  shm::OfferReply reply;
  Fd got;
  ASSERT_TRUE(await_input(stranger));
  const Status status = shm::receive_message(stranger.get(), reply, &got);
  EXPECT_THAT(status.code(), ::testing::AnyOf(Code::kClosed, Code::kIoError)) << status.to_string();
  EXPECT_FALSE(got.is_open());
}

TEST_F(Handover, AProofIsWorthNothingElsewhere) {
  const std::string name = "one";
  const std::string other_name = "two";
  const bootstrap::Nonce first = bootstrap::random_nonce();
  const bootstrap::Nonce second = bootstrap::random_nonce();
  const shm::HandoverClaims claims{shm::HandoverRole::kPeer, name, first, second};
  const bootstrap::Proof proof = shm::prove(key_, claims);
  EXPECT_TRUE(shm::proves(proof, key_, claims));
  EXPECT_FALSE(shm::proves(proof, key_of('x'), claims));
  EXPECT_FALSE(shm::proves(proof, key_, {shm::HandoverRole::kOwner, name, first, second}));
  EXPECT_FALSE(shm::proves(proof, key_, {shm::HandoverRole::kPeer, other_name, first, second}));
  EXPECT_FALSE(shm::proves(proof, key_, {shm::HandoverRole::kPeer, name, second, first}));
}

TEST_F(Handover, RequestsWithoutAProofAndGarbageEndTheConnection) {
  for (const std::size_t size :
       {std::size_t{1}, sizeof(shm::OfferRequest), sizeof(shm::Response), std::size_t{4096}}) {
    const Fd stranger = stranger_at(*server_);
    shm::Challenge challenge;
    ASSERT_TRUE(await_input(stranger));
    ASSERT_TRUE(shm::receive_message(stranger.get(), challenge).is_ok());
    const Bytes garbage(size, std::byte{0x44});
    ASSERT_TRUE(shm::send_message(stranger.get(), garbage, file_.get()).is_ok());
    ASSERT_TRUE(await_input(stranger));
    EXPECT_FALSE(shm::receive_message(stranger.get(), challenge).is_ok()) << size;
  }
  EXPECT_TRUE(connect()->fetch(kRegion).is_ok());
}

TEST_F(Handover, CrowdsOfStrangersKeepNoPeerAway) {
  const auto before = connect();
  std::vector<Fd> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(stranger_at(*server_));
  EXPECT_TRUE(connect()->fetch(kRegion).is_ok());
  EXPECT_TRUE(before->fetch(kRegion).is_ok());
}

// A peer may pass several descriptors with one message. None but the first may stay open here.
TEST(HandoverMessage, OfSeveralDescriptorsKeepsTheFirst) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const Fd peer(ends[0]);
  const Fd own(ends[1]);
  const Fd file = file_with("first");
  const int passed[] = {file.get(), peer.get(), peer.get()};
  const shm::OfferReply reply{.is_given = 1};
  iovec part{const_cast<shm::OfferReply*>(&reply), sizeof reply};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof passed)] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  CMSG_FIRSTHDR(&header)->cmsg_level = SOL_SOCKET;
  CMSG_FIRSTHDR(&header)->cmsg_type = SCM_RIGHTS;
  CMSG_FIRSTHDR(&header)->cmsg_len = CMSG_LEN(sizeof passed);
  std::memcpy(CMSG_DATA(CMSG_FIRSTHDR(&header)), passed, sizeof passed);
  ASSERT_EQ(sendmsg(peer.get(), &header, 0), static_cast<ssize_t>(sizeof reply));

  const auto open_descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = open_descriptors();
  Fd got;
  shm::OfferReply arrived;
  ASSERT_TRUE(shm::receive_message(own.get(), arrived, &got).is_ok());
  EXPECT_EQ(content_of(got), "first");
  EXPECT_EQ(open_descriptors(), before + 1);
}

TEST_F(Handover, AStrangerThatListensIsNotBelieved) {
  const std::string name = "dunlin-shm-impostor-" + std::to_string(getpid());
  const auto address = shm::make_socket_address(name, "").value();
  const Fd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(listener.get(), address.get(), address.size), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Fd taken(accept(listener.get(), nullptr, nullptr));
    shm::Response response;
    (void)shm::send_message(taken.get(), shm::Challenge{});
    (void)await_input(taken);
    (void)shm::receive_message(taken.get(), response);
    (void)shm::send_message(taken.get(), shm::Acceptance{});
    (void)await_input(taken);  // the other end closes
    _exit(0);
  }
  const Status status =
      shm::DescriptorClient::connect(key_, {name, false, shm::this_network_namespace(), ""}, "")
          .status();
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(status.to_string(), HasSubstr("a stranger listens there"));
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST_F(Handover, ThePidfdTellsOfTheEnd) {
  int pipe_of_name[2];
  ASSERT_EQ(pipe(pipe_of_name), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto server = shm::DescriptorServer::create(key_, "").value();
    const std::string name = server->place().name;
    (void)!write(pipe_of_name[1], name.data(), name.size());
    for (;;) pause();
  }
  char name[128] = {};
  ASSERT_GT(read(pipe_of_name[0], name, sizeof name - 1), 0);
  auto client =
      shm::DescriptorClient::connect(key_, {name, false, shm::this_network_namespace(), ""}, "");
  const auto process = shm::PeerProcess::meet(std::move(client).value()).value();
  EXPECT_EQ(process->pid(), PeerTable::kForeignPid);
  EXPECT_FALSE(process->has_ended());
  kill(child, SIGKILL);
  EXPECT_TRUE(await_input(process->watch().value()));
  EXPECT_TRUE(process->has_ended());
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  close(pipe_of_name[0]);
  close(pipe_of_name[1]);
}

TEST_F(Handover, ProcessMemoryIsReadAndWritten) {
  server_->offer_process_memory();
  const auto process = shm::PeerProcess::meet(connect()).value();
  std::vector<char> there(100'000, 'a');
  std::vector<char> here(there.size(), 'b');
  ASSERT_TRUE(process->check_memory(reinterpret_cast<std::uintptr_t>(there.data())).is_ok());
  const iovec local{here.data(), here.size()};
  const iovec remote{there.data(), there.size()};
  EXPECT_EQ(process->write_memory(&local, &remote, 1), static_cast<ssize_t>(here.size()));
  EXPECT_EQ(there, here);
  there.back() = 'c';
  EXPECT_EQ(process->read_memory(&local, &remote, 1), static_cast<ssize_t>(here.size()));
  EXPECT_EQ(there, here);
  const iovec nowhere{nullptr, here.size()};
  EXPECT_EQ(process->read_memory(&local, &nowhere, 1), -1);
  EXPECT_EQ(errno, EFAULT);
}

TEST(HandoverFolder, ASocketOfThisUserThatIsRemoved) {
  const TempFolder folder;
  const JobKey key = key_of('k');
  const Fd file = file_with("in a folder");
  {
    const auto server = shm::DescriptorServer::create(key, folder.path()).value();
    server->offer(kRegion, file.get());
    struct stat info {};
    const std::string path = folder.file(server->place().name);
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode, static_cast<mode_t>(S_IFSOCK | S_IRUSR | S_IWUSR));
    const auto client = shm::DescriptorClient::connect(key, server->place(), folder.path()).value();
    EXPECT_EQ(content_of(client->fetch(kRegion).value()), "in a folder");
    const TempFolder other;
    EXPECT_THAT(
        shm::DescriptorClient::connect(key, server->place(), other.path()).status().to_string(),
        HasSubstr("DUNLIN_SHM_DIR must name the same folder"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(HandoverFolder, SocketsOfKilledProcessesAreRemovedAndOthersAreNot) {
  const TempFolder folder;
  const JobKey key = key_of('k');
  const pid_t child = fork();
  if (child == 0) {
    const auto server = shm::DescriptorServer::create(key, folder.path());
    raise(SIGKILL);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const auto count = [&] {
    return std::distance(std::filesystem::directory_iterator(folder.path()), {});
  };
  EXPECT_EQ(count(), 1);
  const auto first = shm::DescriptorServer::create(key, folder.path()).value();
  EXPECT_EQ(count(), 1);
  const auto second = shm::DescriptorServer::create(key, folder.path()).value();
  EXPECT_EQ(count(), 2);
  EXPECT_TRUE(shm::DescriptorClient::connect(key, first->place(), folder.path()).is_ok());
}

TEST(HandoverFolder, AFolderThatCannotBeUsedIsAnError) {
  const JobKey key = key_of('k');
  EXPECT_THAT(shm::DescriptorServer::create(key, "/no/such/folder").status().to_string(),
              HasSubstr("DUNLIN_SHM_DIR=/no/such/folder"));
  const Status status = shm::DescriptorServer::create(key, std::string(120, 'x')).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.to_string(), HasSubstr("DUNLIN_SHM_DIR has 120 bytes"));
}

TEST(HandoverPlace, TheErrorSaysWhatIsMissing) {
  const std::uint64_t here = shm::this_network_namespace();
  EXPECT_TRUE(shm::check_place({"name", false, here, ""}, "").is_ok());
  EXPECT_TRUE(shm::check_place({"name", false, here, ""}, "/folder").is_ok());
  EXPECT_TRUE(shm::check_place({"name", true, here + 1, ""}, "/folder").is_ok());
  const auto why = [](const shm::HandoverPlace& place) {
    const Status status = shm::check_place(place, "");
    EXPECT_EQ(status.code(), Code::kUnavailable);
    return status.to_string();
  };
  EXPECT_THAT(why({"name", false, here + 1, ""}), HasSubstr("share no network namespace"));
  EXPECT_THAT(why({"name", true, here, ""}), HasSubstr("set it here, too"));
  EXPECT_THAT(why({"", false, here, "pidfd_open failed"}), HasSubstr("pidfd_open failed"));
}

TEST(HandoverThreads, AServerWithoutOneIsAnError) {
  const NoThreads no_threads;
  EXPECT_THAT(shm::DescriptorServer::create(key_of('k'), "").status().to_string(),
              HasSubstr("starting the thread dunlin-handover"));
}

}  // namespace
}  // namespace dunlin::testing
