// Files that are written as a whole: what is replaced, what is written to where it stands, and what
// is left when it fails.
#include "runtime/files/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "runtime/fd.h"
#include "tests/support/files.h"
#include "tests/support/temp_folder.h"

namespace dunlin {
namespace {

namespace fs = std::filesystem;
using testing::content_of;
using testing::written;

class OutputFile : public ::testing::TestWithParam<bool> {
 protected:
  Status replace(const std::string& path, std::string_view content, bool is_durable = false) {
    return replace_file(path, content, {.is_durable = is_durable, .may_be_nameless = GetParam()});
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      found.push_back(entry.path().filename());
    }
    std::ranges::sort(found);
    return found;
  }
  static unsigned mode_of(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0);
    return info.st_mode & 07777;
  }

  const testing::TempFolder folder_;
  const std::string path_ = folder_.file("out");
};
INSTANTIATE_TEST_SUITE_P(Content, OutputFile, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "Nameless" : "Named"; });

TEST_P(OutputFile, IsCreatedWithThePermissionsOfANewFile) {
  ASSERT_TRUE(replace(path_, "new", true).is_ok());
  EXPECT_EQ(content_of(path_), "new");
  const mode_t mask = ::umask(0);
  ::umask(mask);
  EXPECT_EQ(mode_of(path_), 0666 & ~mask);
  EXPECT_THAT(names(), ::testing::ElementsAre("out"));
}

TEST_P(OutputFile, IsCreatedForItsOwnerAloneIfAskedFor) {
  ASSERT_TRUE(
      replace_file(path_, "new", {.may_be_nameless = GetParam(), .is_private = true}).is_ok());
  EXPECT_EQ(mode_of(path_), 0600u);
}

TEST_P(OutputFile, IsReplacedByAnotherFileThatKeepsItsPermissions) {
  written(path_, "a longer former content");
  ASSERT_EQ(::chmod(path_.c_str(), 0640), 0);
  const Fd reader(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(replace(path_, "new").is_ok());
  EXPECT_EQ(content_of(path_), "new");
  EXPECT_EQ(mode_of(path_), 0640u);
  // A reader that opened the file before reads the former content to its end.
  std::string former(64, '\0');
  former.resize(static_cast<std::size_t>(::read(reader.get(), former.data(), former.size())));
  EXPECT_EQ(former, "a longer former content");
  EXPECT_THAT(names(), ::testing::ElementsAre("out"));
}

TEST_P(OutputFile, OfAnotherUserStaysWithThatUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  written(path_, "former");
  ASSERT_EQ(::chown(path_.c_str(), 12, 34), 0);
  ASSERT_EQ(::chmod(path_.c_str(), 04751), 0);
  ASSERT_TRUE(replace(path_, "new").is_ok());
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 12u);
  EXPECT_EQ(info.st_gid, 34u);
  EXPECT_EQ(mode_of(path_), 0751u);
}

TEST_P(OutputFile, LinksStayAndTheFileAtTheirEndIsReplaced) {
  fs::create_directory(folder_.path() / "deep");
  written(folder_.file("deep/target"), "former");
  fs::create_symlink("deep/link", path_);
  fs::create_symlink("target", folder_.path() / "deep/link");
  ASSERT_TRUE(replace(path_, "new").is_ok());
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_TRUE(fs::is_symlink(folder_.path() / "deep/link"));
  EXPECT_EQ(content_of(folder_.file("deep/target")), "new");
  EXPECT_THAT(names(), ::testing::ElementsAre("deep", "out"));
}

TEST_P(OutputFile, ALinkToNothingYetLeadsToTheNewFile) {
  fs::create_symlink("target", path_);
  ASSERT_TRUE(replace(path_, "new").is_ok());
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_EQ(content_of(folder_.file("target")), "new");
}

TEST_P(OutputFile, ALinkToItselfIsAnError) {
  fs::create_symlink("out", path_);
  EXPECT_THAT(std::string(replace(path_, "new").message()), ::testing::HasSubstr("symbolic links"));
}

TEST_P(OutputFile, LinksAtFormerTemporaryNamesAreNotFollowed) {
  written(folder_.file("victim"), "precious");
  fs::create_symlink("victim", path_ + ".partial");
  ASSERT_TRUE(replace(path_, "new").is_ok());
  EXPECT_EQ(content_of(folder_.file("victim")), "precious");
  EXPECT_THAT(names(), ::testing::ElementsAre("out", "out.partial", "victim"));
}

TEST_P(OutputFile, EntriesOfOthersInASharedFolderAreRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make another user's link";
  fs::create_directory(folder_.path() / "shared");
  ASSERT_EQ(::chmod(folder_.file("shared").c_str(), 01777), 0);
  const std::string trap = folder_.file("shared/out");
  written(folder_.file("victim"), "precious");
  fs::create_symlink(folder_.file("victim"), trap);
  ASSERT_EQ(::lchown(trap.c_str(), 12, 34), 0);
  const Status status = replace(trap, "new");
  EXPECT_EQ(status.code(), Code::kPermissionDenied) << status.to_string();
  EXPECT_EQ(content_of(folder_.file("victim")), "precious");
}

TEST_P(OutputFile, DevicesStayDevices) {
  // A copy of /dev/null, so that the host keeps its own if this fails.
  if (::mknod(path_.c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0) {
    GTEST_SKIP() << "this user may not make devices";
  }
  ASSERT_TRUE(replace(path_, "new", true).is_ok());
  struct stat info {};
  ASSERT_EQ(::lstat(path_.c_str(), &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
  EXPECT_EQ(info.st_rdev, makedev(1, 3));
  EXPECT_THAT(names(), ::testing::ElementsAre("out"));
}

TEST_P(OutputFile, AFullDeviceIsAnError) {
  // A copy of /dev/full.
  if (::mknod(path_.c_str(), S_IFCHR | 0666, makedev(1, 7)) != 0) {
    GTEST_SKIP() << "this user may not make devices";
  }
  const Status status = replace(path_, "new");
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status.to_string();
  EXPECT_THAT(std::string(status.message()), ::testing::StartsWith(path_ + ": "));
}

TEST_P(OutputFile, AFifoIsWrittenToOnceItHasAReader) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = content_of(path_); });
  // More than a pipe holds.
  const std::string content(200'000, 'x');
  const Status status = replace(path_, content);
  reader.join();
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_EQ(got, content);
  EXPECT_TRUE(fs::is_fifo(path_));
}

TEST_P(OutputFile, AReaderThatLeavesIsAnErrorAndNoSignal) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  std::thread reader([&] { Fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)).reset(); });
  const Status status = replace(path_, std::string(200'000, 'x'));
  reader.join();
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("Broken pipe"));
  sigset_t pending;
  ASSERT_EQ(sigpending(&pending), 0);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

TEST_P(OutputFile, ASocketIsWrittenTo) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path_.size(), sizeof address.sun_path);
  path_.copy(address.sun_path, path_.size());
  const Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_TRUE(replace(path_, "new").is_ok());
  const Fd connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::string got(8, '\0');
  got.resize(static_cast<std::size_t>(::read(connection.get(), got.data(), got.size())));
  EXPECT_EQ(got, "new");
  EXPECT_TRUE(fs::is_socket(path_));
}

TEST_P(OutputFile, OpenDescriptorsAreWrittenToWhereTheyStand) {
  const Fd open(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::write(open.get(), "before ", 7), 7);
  for (const char* const folder : {"/proc/self/fd/", "/dev/fd/"}) {
    ASSERT_TRUE(replace(folder + std::to_string(open.get()), "within ").is_ok()) << folder;
  }
  ASSERT_EQ(::write(open.get(), "after", 5), 5);
  EXPECT_EQ(content_of(path_), "before within within after");
  EXPECT_THAT(names(), ::testing::ElementsAre("out"));
  EXPECT_TRUE(replace("/proc/self/fd/54321", "x").is_error());
  EXPECT_EQ(replace("/proc/self/fd/none", "x").code(), Code::kNotFound);
}

TEST_P(OutputFile, PipesAndSocketsAmongOpenDescriptorsAreWrittenTo) {
  int ends[2];
  for (const bool is_socket : {false, true}) {
    ASSERT_EQ(is_socket ? ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)
                        : ::pipe2(ends, O_CLOEXEC),
              0);
    const Fd from(ends[0]);
    const Fd to(ends[1]);
    ASSERT_TRUE(replace("/dev/fd/" + std::to_string(to.get()), "new").is_ok());
    char got[8];
    EXPECT_EQ(::read(from.get(), got, sizeof got), 3);
  }
}

TEST_P(OutputFile, AFailureKeepsTheFormerContentAndLeavesNothingBeside) {
  written(path_, "former");
  // A file system that is full, or nearly so.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low{100, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const Status status = replace(path_, std::string(1000, 'x'));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.to_string(), "io_error: " + path_ + ": write: File too large");
  EXPECT_EQ(content_of(path_), "former");
  EXPECT_THAT(names(), ::testing::ElementsAre("out"));
}

TEST_P(OutputFile, WhatCannotBeAFileIsRefused) {
  EXPECT_THAT(std::string(replace(folder_.path(), "x").message()),
              ::testing::HasSubstr("Is a directory"));
  EXPECT_TRUE(replace(folder_.file("new/"), "x").is_error());
  EXPECT_TRUE(replace("", "x").is_error());
  EXPECT_TRUE(replace("/", "x").is_error());
  const Status status = replace(folder_.file("absent/out"), "x");
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(folder_.file("absent/out")));
  EXPECT_TRUE(names().empty());
}

TEST_P(OutputFile, AReadOnlyFileIsNotReplaced) {
  // Root may write every file: the test becomes somebody else, in a process of its own.
  written(path_, "former");
  ASSERT_EQ(::chmod(path_.c_str(), 0444), 0);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0777), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(12) != 0) ::_exit(2);
    ::_exit(replace(path_, "new").code() == Code::kPermissionDenied ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(content_of(path_), "former");
  EXPECT_THAT(names(), ::testing::ElementsAre("out"));
}

TEST_P(OutputFile, LongNamesHaveRoomForATemporaryOne) {
  const std::string longest(255, 'n');
  ASSERT_TRUE(replace(folder_.file(longest), "new").is_ok());
  EXPECT_THAT(names(), ::testing::ElementsAre(longest));
}

}  // namespace
}  // namespace dunlin
