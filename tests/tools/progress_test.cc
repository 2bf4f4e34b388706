// The line that shows the progress of a long computation.
#include "tools/lib/progress.h"

#include <gtest/gtest.h>

namespace dunlin::tools {
namespace {

class ProgressTest : public ::testing::Test {
 protected:
  ProgressTest() : stream_(open_memstream(&text_, &size_)) {}
  ~ProgressTest() override {
    std::fclose(stream_);
    free(text_);
  }
  std::string written() {
    std::fflush(stream_);
    return {text_, size_};
  }

  ManualClock clock_;
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* stream_;
};

TEST_F(ProgressTest, AShortComputationShowsNothing) {
  {
    Progress progress(clock_, stream_);
    clock_.advance(Progress::kDelay / 2);
    progress.show([] { return "early"; });
  }
  EXPECT_EQ(written(), "");
}

TEST_F(ProgressTest, ALongOneReplacesItsLineAndClearsItInTheEnd) {
  {
    Progress progress(clock_, stream_);
    clock_.advance(Progress::kDelay);
    progress.show([] { return "one"; });
    progress.show([] { return "too soon"; });
    clock_.advance(Progress::kInterval);
    progress.show([] { return "two"; });
  }
  EXPECT_EQ(written(), "\r\033[Kone\r\033[Ktwo\r\033[K");
}

TEST_F(ProgressTest, WithoutATerminalNothingIsShown) {
  Progress progress(clock_, nullptr);
  clock_.advance(2 * Progress::kDelay);
  progress.show([] { return "unseen"; });
  EXPECT_EQ(written(), "");
}

}  // namespace
}  // namespace dunlin::tools
