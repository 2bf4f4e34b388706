// Virtual workers that learn: their problem, the operations of methods on their models, and the
// results in the figures and sweeps of `dunlin-sim groups`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tools/dunlin-sim/groups/figures.h"
#include "tools/dunlin-sim/groups/sweeps.h"

namespace dunlin::simulate {
namespace {

using namespace std::chrono_literals;

const LearningProblem& problem() {
  static const LearningProblem made(1);
  return made;
}

TEST(LearningProblem, GradientIsThatOfTheLoss) {
  std::vector<float> model = problem().initial_model();
  std::vector<float> gradient(model.size()), unused(model.size());
  const auto loss = [&](std::size_t k, float change) {
    std::vector<float> moved = model;
    moved[k] += change;
    return problem().gradient(moved, Rank(3), 7, 16, unused);
  };
  problem().gradient(model, Rank(3), 7, 16, gradient);
  // A step along the gradient changes the loss by the square of the gradient, to first order.
  double square = 0;
  for (const float each : gradient) square += each * each;
  constexpr float kStep = 1e-4F;
  std::vector<float> further = model, back = model;
  for (std::size_t k = 0; k < model.size(); ++k) {
    further[k] += kStep * gradient[k];
    back[k] -= kStep * gradient[k];
  }
  EXPECT_NEAR((problem().gradient(further, Rank(3), 7, 16, unused) -
               problem().gradient(back, Rank(3), 7, 16, unused)) /
                  (2 * kStep),
              square, 0.01 * square);
  // The same holds for single parameters, in each part of the model.
  for (const std::size_t k : {std::size_t{5}, LearningProblem::kFeatures * LearningProblem::kHidden,
                              model.size() - 20, model.size() - 1}) {
    constexpr float kChange = 1e-2F;
    EXPECT_NEAR((loss(k, kChange) - loss(k, -kChange)) / (2 * kChange), gradient[k], 5e-3) << k;
  }
}

TEST(LearningProblem, DrawsTheSameForTheSameWorkerAndIterationOnly) {
  const std::vector<float> model = problem().initial_model();
  const auto gradient = [&](const LearningProblem& from, int worker, std::uint64_t iteration) {
    std::vector<float> made(model.size());
    from.gradient(model, Rank(worker), iteration, 8, made);
    return made;
  };
  const auto once = gradient(problem(), 2, 5);
  EXPECT_EQ(gradient(LearningProblem(1), 2, 5), once);
  EXPECT_NE(gradient(problem(), 3, 5), once);
  EXPECT_NE(gradient(problem(), 2, 6), once);
  EXPECT_NE(gradient(LearningProblem(2), 2, 5), once);
}

GroupModels computed_models(int workers) {
  GroupModels models(problem(), {}, workers);
  for (int i = 0; i < workers; ++i) models.compute(Rank(i), 0);
  return models;
}

void expect_near(const std::vector<float>& some, const std::vector<float>& others) {
  ASSERT_EQ(some.size(), others.size());
  for (std::size_t k = 0; k < some.size(); ++k) ASSERT_NEAR(some[k], others[k], 1e-6) << k;
}

TEST(GroupModels, AveragesLeaveTheMeanOfAllAsItIs) {
  GroupModels models = computed_models(5);
  for (int i = 0; i < 5; ++i) models.step(Rank(i));
  ASSERT_NE(models.model(Rank(1)), models.model(Rank(3)));
  const std::vector<float> mean = models.mean_model();
  const std::vector<float> other = models.model(Rank(0));
  models.average({Rank(1), Rank(3), Rank(4)});
  EXPECT_EQ(models.model(Rank(1)), models.model(Rank(3)));
  EXPECT_EQ(models.model(Rank(1)), models.model(Rank(4)));
  EXPECT_EQ(models.model(Rank(0)), other);
  expect_near(models.mean_model(), mean);
  models.average({Rank(0), Rank(1), Rank(2), Rank(3), Rank(4)});
  expect_near(models.model(Rank(2)), mean);
  // The mean of equal models is the same model, to the bit.
  EXPECT_EQ(models.mean_model(), models.model(Rank(2)));
}

TEST(GroupModels, AServersStepsAreThoseOfAllReduce) {
  GroupModels reduced = computed_models(4), served = computed_models(4), one_by_one = served;
  reduced.step_by_mean();
  served.serve_mean();
  ASSERT_NE(served.model(Rank(2)), reduced.model(Rank(2)));  // not yet
  for (int i = 0; i < 4; ++i) {
    served.pull(Rank(i));
    one_by_one.serve(Rank(i));
    EXPECT_EQ(served.model(Rank(i)), reduced.model(Rank(i)));
  }
  EXPECT_EQ(served.loss(), reduced.loss());
  // Gradients of the same model, applied one after the other, give the same result.
  one_by_one.pull(Rank(0));
  expect_near(one_by_one.model(Rank(0)), reduced.model(Rank(0)));
}

TEST(GroupModels, AGradientIsOfTheModelAsItWasWhenTheComputationBegan) {
  GroupModels models = computed_models(3);
  const std::vector<float> before = models.model(Rank(1));
  models.step(Rank(0));
  models.average({Rank(0), Rank(1)});  // while 1 computes
  const std::vector<float> averaged = models.model(Rank(1));
  models.step(Rank(1));
  std::vector<float> gradient(before.size());
  const LearningOptions options;
  problem().gradient(before, Rank(1), 0, options.batch, gradient);
  std::vector<float> expected = averaged;
  for (std::size_t k = 0; k < expected.size(); ++k)
    expected[k] -= static_cast<float>(options.learning_rate) * gradient[k];
  expect_near(models.model(Rank(1)), expected);
}

TEST(GroupModels, WithoutAProblemNothingIsLearnt) {
  GroupModels models;
  models.compute(Rank(0), 0);
  models.step(Rank(0));
  models.average({Rank(0), Rank(1)});
  models.step_by_mean();
  models.serve_mean();
  models.pull(Rank(0));
  EXPECT_EQ(models.loss(), 0);
}

LearningRun learn(const GroupSetting& setting, GroupMethod method, const Slowdown& slowdown = {},
                  const LearningOptions& options = {}) {
  auto run = learn_method(setting, method, slowdown, problem(), options);
  EXPECT_TRUE(run.is_ok()) << to_string(method) << ' ' << run.status().to_string();
  return run ? std::move(*run) : LearningRun{};
}

std::vector<std::pair<double, double>> losses(const LearningRun& run) {
  std::vector<std::pair<double, double>> found;
  for (const LearningMoment& moment : run.curve) found.push_back({moment.iterations, moment.loss});
  return found;
}

TEST(GroupLearning, AllReduceLearnsWhatTheParameterServerDoesAndSooner) {
  const LearningRun reduced = learn({}, GroupMethod::kAllReduce);
  const LearningRun served = learn({}, GroupMethod::kParameterServer);
  ASSERT_TRUE(reduced.target && served.target);
  ASSERT_GT(reduced.curve.size(), 20u);
  EXPECT_EQ(losses(reduced), losses(served));
  EXPECT_LT(reduced.target->seconds, served.target->seconds / 2);
  // A slow worker costs only time.
  const LearningRun slowed = learn({}, GroupMethod::kAllReduce, {5, false});
  EXPECT_EQ(losses(slowed), losses(reduced));
  EXPECT_GT(slowed.target->seconds, 2 * reduced.target->seconds);
}

TEST(GroupLearning, EveryMethodReachesTheLossAndTwiceInTheSameWay) {
  const double usual = learn({}, GroupMethod::kAllReduce).target->iterations;
  for (const GroupMethod method : kGroupMethods) {
    for (const Slowdown slowdown : {Slowdown{}, {5, false}, {5, true}}) {
      const LearningRun run = learn({}, method, slowdown);
      ASSERT_TRUE(run.target) << to_string(method);
      // The first evaluation at which it is reached is the last one.
      EXPECT_LE(run.curve.back().loss, run.target->loss);
      EXPECT_GT(run.curve[run.curve.size() - 2].loss, run.target->loss);
      EXPECT_LE(run.target->seconds, run.curve.back().seconds);
      EXPECT_GT(run.target->iterations, usual / 2) << to_string(method);
      EXPECT_LT(run.target->iterations, usual * 2) << to_string(method);
    }
    const LearningRun once = learn({}, method, {2, true});
    EXPECT_EQ(losses(learn({}, method, {2, true})), losses(once)) << to_string(method);
  }
}

TEST(GroupLearning, LocalSgdThatAveragesAlwaysIsAllReduce) {
  GroupSetting setting;
  setting.local_section_length = 1;
  LearningOptions options;
  options.most_iterations = 40;
  const LearningRun local = learn(setting, GroupMethod::kLocalSgd, {}, options);
  const LearningRun reduced = learn(setting, GroupMethod::kAllReduce, {}, options);
  ASSERT_EQ(local.curve.size(), reduced.curve.size());
  // They differ by rounding: one takes means of models, the other of gradients.
  for (std::size_t i = 0; i < local.curve.size(); ++i)
    EXPECT_NEAR(local.curve[i].loss, reduced.curve[i].loss, 1e-3) << i;
}

TEST(GroupLearning, WhoAveragesTooSeldomNeedsMoreIterations) {
  const auto points = make_section_figure({}, {1, 32}, {});
  ASSERT_TRUE(points.is_ok()) << points.status().to_string();
  ASSERT_EQ(points->size() % 2, 0u);
  for (std::size_t i = 0; i < points->size(); i += 2) {
    const SectionPoint& often = (*points)[i];
    const SectionPoint& seldom = (*points)[i + 1];
    ASSERT_TRUE(often.run.target && seldom.run.target) << to_string(often.method);
    EXPECT_EQ(seldom.section_length, 32u);
    EXPECT_GT(seldom.run.target->iterations, 1.1 * often.run.target->iterations)
        << to_string(often.method);
  }
  EXPECT_NE(to_text(*points).find("section length"), std::string::npos);
  EXPECT_EQ(to_json(*points).size(), points->size());
  EXPECT_EQ(to_json(*points).front().at("figure"), "16");
}

TEST(GroupLearning, ALossThatIsNotReachedIsSaid) {
  LearningOptions options;
  options.most_iterations = 10;
  const LearningRun run = learn({}, GroupMethod::kSmart, {}, options);
  EXPECT_FALSE(run.target);
  EXPECT_EQ(run.curve.size(), 6u);  // at 0, 2, .. 10
  const auto points = make_group_figures({}, {2}, options);
  EXPECT_EQ(points.status().code(), Code::kInvalidArgument);
  EXPECT_NE(points.status().to_string().find("doesn't reach a loss of 0.32 within 10 iterations"),
            std::string::npos);
  // With too large a rate, the run ends when the loss is no longer a number.
  options = {};
  options.learning_rate = 1e30;
  EXPECT_FALSE(learn({}, GroupMethod::kAllReduce, {}, options).target);
}

TEST(GroupLearning, FiguresHaveThePapersColumns) {
  LearningOptions options;
  options.target_loss = 0.6;  // soon
  const auto points = make_group_figures({}, {5}, options);
  ASSERT_TRUE(points.is_ok()) << points.status().to_string();
  const auto find = [&](double factor, GroupMethod method) {
    return *std::find_if(points->begin(), points->end(), [&](const GroupPoint& point) {
      return point.slowdown.factor == factor && !point.slowdown.is_random && point.method == method;
    });
  };
  EXPECT_EQ(find(0, GroupMethod::kParameterServer).overall_speedup, 1);
  EXPECT_EQ(find(0, GroupMethod::kAllReduce).iterations_over_server, 1);
  for (const GroupPoint& point : *points) {
    ASSERT_TRUE(point.overall_speedup) << to_string(point.method);
    // The overall speed-up is that per iteration, divided by the share of the iterations, with the
    // resolution of the evaluations.
    EXPECT_NEAR(*point.overall_speedup, point.over_parameter_server / *point.iterations_over_server,
                0.2 * *point.overall_speedup)
        << describe(point.slowdown) << ' ' << to_string(point.method);
  }
  EXPECT_GT(*find(5, GroupMethod::kSmart).overall_speedup,
            3.5 * *find(5, GroupMethod::kAllReduce).overall_speedup);
  EXPECT_EQ(find(0, GroupMethod::kAdPsgd).paper->iterations, 0.78);
  const auto rows = to_json(*points);
  EXPECT_GT(rows.front().at("curve").size(), 5u);
  EXPECT_EQ(rows.front().at("curve").at(0).size(), 3u);
  EXPECT_TRUE(rows.back().at("reaches_loss").get<bool>());
  EXPECT_NE(to_text(*points).find("overall"), std::string::npos);
}

TEST(GroupSweeps, FindTheComputationThatGivesTheRatio) {
  GroupSetting setting;
  for (const double ratio : {3.0, 4.27}) {
    const auto compute = calibrate_compute(setting, ratio);
    ASSERT_TRUE(compute.is_ok()) << compute.status().to_string();
    setting.compute = *compute;
    const auto points = compare_methods(setting, {{}}, std::nullopt);
    ASSERT_TRUE(points.is_ok());
    for (const GroupPoint& point : *points) {
      if (point.method == GroupMethod::kAllReduce) {
        EXPECT_NEAR(point.over_parameter_server, ratio, 0.02 * ratio);
      }
    }
  }
  const auto none = calibrate_compute(setting, 1000);
  EXPECT_EQ(none.status().code(), Code::kInvalidArgument);
  EXPECT_NE(none.status().to_string().find("1000 times"), std::string::npos);
}

TEST(GroupSweeps, AllReduceScalesAndAServerDoesNot) {
  std::vector<ScaleBlock> blocks;
  for (const int hosts : {4, 32}) {
    GroupSetting setting;
    setting.layout = {hosts, 4};
    setting.iterations = 30;
    auto points = compare_methods(setting, {{}, {5, false}}, std::nullopt);
    ASSERT_TRUE(points.is_ok()) << points.status().to_string();
    blocks.push_back({setting.layout.workers(), std::move(*points)});
  }
  const auto growth = [&](GroupMethod method) {
    const auto rate = [&](const ScaleBlock& block) {
      return std::find_if(block.points.begin(), block.points.end(),
                          [&](const GroupPoint& point) { return point.method == method; })
          ->iterations_per_s;
    };
    return rate(blocks[1]) / rate(blocks[0]);
  };
  EXPECT_LT(growth(GroupMethod::kParameterServer), 1.2);
  EXPECT_GT(growth(GroupMethod::kAllReduce), 6);
  EXPECT_GT(growth(GroupMethod::kSmart), 6);
  EXPECT_NE(to_text(blocks).find("128"), std::string::npos);
  EXPECT_NE(to_text(blocks).find("one worker slowed 5x"), std::string::npos);
}

// These figures date from before the learning and before the faster sharing of links.
TEST(GroupFigures, TimesAreWhatTheyWere) {
  struct Figure {
    Slowdown slowdown;
    GroupMethod method;
    double iterations_per_s;
  };
  const Figure figures[] = {
      {{0, false}, GroupMethod::kParameterServer, 411.3216507},
      {{0, false}, GroupMethod::kAllReduce, 1685.260638},
      {{0, false}, GroupMethod::kAdPsgd, 982.9376907},
      {{0, false}, GroupMethod::kStatic, 1997.096011},
      {{0, false}, GroupMethod::kRandom, 359.4943365},
      {{0, false}, GroupMethod::kBuffered, 655.1243811},
      {{0, false}, GroupMethod::kSmart, 2017.495784},
      {{5, false}, GroupMethod::kParameterServer, 279.4693864},
      {{5, false}, GroupMethod::kAllReduce, 379.0858367},
      {{5, false}, GroupMethod::kAdPsgd, 963.3127953},
      {{5, false}, GroupMethod::kStatic, 395.3272336},
      {{5, false}, GroupMethod::kRandom, 281.1289191},
      {{5, false}, GroupMethod::kBuffered, 441.1091015},
      {{5, false}, GroupMethod::kSmart, 1882.709057},
      {{2, true}, GroupMethod::kParameterServer, 410.9841449},
      {{2, true}, GroupMethod::kAllReduce, 902.1341798},
      {{2, true}, GroupMethod::kAdPsgd, 966.3385},
      {{2, true}, GroupMethod::kStatic, 1275.08329},
      {{2, true}, GroupMethod::kRandom, 323.081636},
      {{2, true}, GroupMethod::kBuffered, 578.8950626},
      {{2, true}, GroupMethod::kSmart, 1422.382239},
  };
  for (const Figure& figure : figures) {
    const auto found = measure_method({}, figure.method, figure.slowdown);
    ASSERT_TRUE(found.is_ok()) << found.status().to_string();
    EXPECT_NEAR(*found, figure.iterations_per_s, 1e-6 * figure.iterations_per_s)
        << describe(figure.slowdown) << ' ' << to_string(figure.method);
  }
}

}  // namespace
}  // namespace dunlin::simulate
