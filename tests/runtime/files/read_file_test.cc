// Files that are read.
#include "runtime/files/read_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/files.h"
#include "tests/support/temp_folder.h"

namespace dunlin {
namespace {

TEST(ReadFile, ReturnsTheWholeContent) {
  const testing::TempFolder folder;
  const std::string content(200'000, 'x');
  EXPECT_EQ(read_file(testing::written(folder.file("large"), content)).value(), content);
  EXPECT_EQ(read_file(testing::written(folder.file("empty"), "")).value(), "");
  EXPECT_EQ(read_file(folder.file("absent")).status().code(), Code::kNotFound);
}

TEST(ReadFile, NeverWaitsForWhatIsNoFile) {
  const testing::TempFolder folder;
  const std::string fifo = folder.file("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(read_file(fifo).status().to_string(),
            "invalid_argument: " + fifo + ": is not a regular file");
  for (const char* const path : {"/", "/dev/null", "/dev/zero"}) {
    EXPECT_EQ(read_file(path).status().code(), Code::kInvalidArgument) << path;
  }
}

}  // namespace
}  // namespace dunlin
