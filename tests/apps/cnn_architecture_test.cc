#include "apps/cnn/architecture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace dunlin::cnn {
namespace {

TEST(CnnArchitecture, HasThePublishedNumbersOfParameters) {
  const auto count = [](NetworkKind kind, int channels, int classes, bool has_batch_norm) {
    return make_architecture(kind, channels, classes, has_batch_norm).count;
  };
  // Ripples / Prague, section 7.1: 9.23 million. He et al., table 6: 0.27 million.
  EXPECT_EQ(count(NetworkKind::kVgg11, 3, 10, false), 9'225'610U);
  EXPECT_EQ(count(NetworkKind::kResnet20, 3, 10, false), 269'722U);
  EXPECT_EQ(count(NetworkKind::kVgg16, 3, 10, false), 14'719'818U);
  // 3 x 3 x 3 x 16 + 16, 3 x 3 x 16 x 32 + 32, 32 x 8 x 8 x 10 + 10
  EXPECT_EQ(count(NetworkKind::kSmall, 3, 10, false), 448U + 4640 + 20'490);
  // One channel less at the input, two classes less at the output.
  EXPECT_EQ(count(NetworkKind::kSmall, 1, 8, false), 160U + 4640 + 16'392);
  // Scale and shift replace the bias: one value more per channel of the convolutions.
  EXPECT_EQ(count(NetworkKind::kVgg11, 3, 10, true), 9'225'610U + 64 + 128 + 2 * 256 + 4 * 512);
}

TEST(CnnArchitecture, LaysOutWhatIsReadyFirstAtTheEnd) {
  for (const NetworkKind kind : kNetworkKinds) {
    const Architecture made = make_architecture(kind, 3, 10, kind == NetworkKind::kVgg11);
    // Segments are adjacent, and so are the parameters in each.
    std::size_t end = 0;
    std::vector<std::size_t> inside;
    for (const Segment& segment : made.segments) {
      EXPECT_EQ(segment.first, end);
      inside.push_back(segment.first);
      end += segment.count;
    }
    EXPECT_EQ(end, made.count);
    std::size_t last = 0;
    for (const Parameter& parameter : made.parameters) {
      EXPECT_GE(parameter.segment, last) << "layers compute from the first segment to the last";
      last = parameter.segment;
      EXPECT_EQ(parameter.first, inside[parameter.segment]);
      inside[parameter.segment] += parameter.count;
      EXPECT_EQ(parameter.count, static_cast<std::size_t>(
                                     std::accumulate(parameter.shape.begin(), parameter.shape.end(),
                                                     std::int64_t{1}, std::multiplies<>())));
    }
    EXPECT_EQ(last, made.segments.size() - 1);
    for (std::size_t i = 0; i < inside.size(); ++i) {
      EXPECT_EQ(inside[i], made.segments[i].first + made.segments[i].count);
    }
  }
}

TEST(CnnArchitecture, InitialParametersFollowFromTheSeed) {
  const Architecture made = make_architecture(NetworkKind::kResnet20, 3, 10, false);
  std::vector<float> one(made.count);
  std::vector<float> two(made.count);
  initialize(made, 5, one);
  initialize(made, 5, two);
  EXPECT_EQ(one, two);
  initialize(made, 6, two);
  EXPECT_NE(one, two);
  for (const Parameter& parameter : made.parameters) {
    if (parameter.count < 2000) continue;
    double sum = 0;
    double squares = 0;
    for (const float value : std::span(one).subspan(parameter.first, parameter.count)) {
      sum += value;
      squares += double{value} * value;
    }
    const auto count = static_cast<double>(parameter.count);
    // He et al.: sqrt(2 / fan_in) of convolutions, whose inputs are 9 values of each channel.
    const double deviation = std::sqrt(2.0 / (9 * static_cast<double>(parameter.shape[1])));
    EXPECT_NEAR(sum / count, 0, 5 * deviation / std::sqrt(count));
    EXPECT_NEAR(std::sqrt(squares / count), deviation, 0.1 * deviation);
  }
}

TEST(CnnArchitecture, RunningStatisticsBeginAtMeanZeroAndVarianceOne) {
  const Architecture made = make_architecture(NetworkKind::kResnet20, 3, 10, false);
  EXPECT_EQ(made.statistics, 2U * (7 * 16 + 6 * 32 + 6 * 64));
  const auto statistics = initial_statistics(made);
  EXPECT_EQ(std::accumulate(statistics.begin(), statistics.end(), 0.0), 7 * 16 + 6 * 32 + 6 * 64);
  EXPECT_TRUE(initial_statistics(make_architecture(NetworkKind::kVgg16, 3, 10, false)).empty());
}

TEST(CnnArchitecture, NamesAreParsed) {
  for (const NetworkKind kind : kNetworkKinds) {
    EXPECT_EQ(parse_network(to_string(kind)).value(), kind);
  }
  EXPECT_EQ(parse_network("vgg").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace dunlin::cnn
