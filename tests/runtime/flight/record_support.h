// Flight records of ranks whose clock the test moves.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "runtime/flight/reader.h"
#include "runtime/flight/recorder.h"
#include "tests/support/temp_folder.h"

namespace dunlin::flight::testing {

class RecordTest : public ::testing::Test {
 protected:
  // Zero would mean that a time is not known.
  RecordTest() { clock_.advance(std::chrono::seconds(100)); }

  std::unique_ptr<Recorder> recorder(Rank rank = Rank(0), int size = 4, bool keeps = false) {
    auto made = Recorder::create({folder(), "job", rank, size, keeps}, clock_);
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    return std::move(made).value();
  }
  std::string folder() const { return temporary_.file("base") + "/job"; }
  Snapshot snapshot(const Recorder& of) const { return snapshot(of.path()); }
  Snapshot snapshot(const std::string& path) const {
    const auto record = Record::open(path);
    EXPECT_TRUE(record.is_ok()) << record.status().to_string();
    return record ? record->snapshot(clock_.now()) : Snapshot();
  }
  static std::vector<PastEvent> events(const Recorder& of) {
    const auto record = Record::open(of.path());
    EXPECT_TRUE(record.is_ok()) << record.status().to_string();
    return record ? record->events() : std::vector<PastEvent>();
  }
  // The rank waits for `peer` from now on, for so long.
  void wait(Recorder& recorder, Rank peer, Duration time) {
    recorder.wait_for(peer, clock_.now(), clock_.now());
    clock_.advance(time);
    recorder.end_wait(clock_.now());
  }

  dunlin::testing::TempFolder temporary_;
  ManualClock clock_;
};

}  // namespace dunlin::flight::testing
