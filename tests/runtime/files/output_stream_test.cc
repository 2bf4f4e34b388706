// Streams to files, and what waits for a reader.
#include "runtime/files/output_stream.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <thread>

#include "runtime/files/destination.h"
#include "tests/support/files.h"
#include "tests/support/temp_folder.h"

namespace dunlin {
namespace {

namespace fs = std::filesystem;
using testing::content_of;
using testing::written;
using enum OutputStream::Start;

class OutputStreamTest : public ::testing::Test {
 protected:
  const testing::TempFolder folder_;
  const std::string path_ = folder_.file("out");
};

TEST_F(OutputStreamTest, WhatIsWrittenCanBeReadAlong) {
  written(path_, "former");
  OutputStream stream = OutputStream::open(path_, kEmpty).value();
  ASSERT_TRUE(stream.write("one\n").is_ok());
  EXPECT_EQ(content_of(path_), "one\n");
  ASSERT_TRUE(stream.write("two\n").is_ok());
  EXPECT_EQ(content_of(path_), "one\ntwo\n");
  ASSERT_TRUE(stream.close().is_ok());
  EXPECT_TRUE(stream.write("dropped").is_ok());
  ASSERT_TRUE(OutputStream::open(path_, kAppend)->write("three\n").is_ok());
  EXPECT_EQ(content_of(path_), "one\ntwo\nthree\n");
}

TEST_F(OutputStreamTest, FollowsLinks) {
  fs::create_symlink("target", path_);
  ASSERT_TRUE(OutputStream::open(path_, kEmpty)->write("line").is_ok());
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_EQ(content_of(folder_.file("target")), "line");
}

TEST_F(OutputStreamTest, OpenDescriptorsKeepWhatWasWrittenToThem) {
  const Fd open(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::write(open.get(), "text ", 5), 5);
  const std::string name = "/dev/fd/" + std::to_string(open.get());
  ASSERT_TRUE(OutputStream::open(name, kEmpty)->write("line").is_ok());
  EXPECT_EQ(content_of(path_), "text line");
}

TEST_F(OutputStreamTest, AFullDeviceIsAnErrorThatNamesIt) {
  if (!fs::is_character_file("/dev/full")) GTEST_SKIP() << "no /dev/full";
  EXPECT_EQ(OutputStream::open("/dev/full", kEmpty)->write("line").to_string(),
            "resource_exhausted: /dev/full: write: No space left on device");
}

TEST_F(OutputStreamTest, AFifoThatNobodyReadsIsAnErrorInTheEnd) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const auto to = files::Destination::find(path_);
  ASSERT_TRUE(to.is_ok());
  EXPECT_EQ(to->open(0, Duration::zero()).status().to_string(),
            "deadline_exceeded: open " + path_ + ": a FIFO that no program reads");
}

TEST_F(OutputStreamTest, SharedDescriptorsMayBeNonBlocking) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd from(ends[0]);
  Fd to(ends[1]);
  ASSERT_EQ(::fcntl(to.get(), F_SETFL, O_NONBLOCK), 0);
  std::string got;
  std::thread reader([&] {
    std::string piece(4096, '\0');
    for (ssize_t size; (size = ::read(from.get(), piece.data(), piece.size())) > 0;) {
      got.append(piece, 0, static_cast<std::size_t>(size));
    }
  });
  // More than the pipe holds.
  const std::string content(200'000, 'x');
  const std::string name = "/dev/fd/" + std::to_string(to.get());
  EXPECT_TRUE(OutputStream::open(name, kEmpty)->write(content).is_ok());
  to.reset();
  reader.join();
  EXPECT_EQ(got, content);
}

}  // namespace
}  // namespace dunlin
