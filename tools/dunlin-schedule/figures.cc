// Figures 3 and 4 of the 2D-TGA paper (section 5.1): communication times by formula, so gamma is 0.
// The values that the paper used (its Table 1) are not known; --alpha, --bandwidth and --size take
// their places.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/units.h"
#include "tools/dunlin-schedule/commands.h"
#include "tools/lib/output.h"

namespace dunlin::schedule {
namespace {

using collective::closed_form;
using collective::ClosedFormCase;
using nlohmann::ordered_json;

constexpr std::array kWorkers{16, 32, 64, 128, 256, 512, 1024};
constexpr std::array kGroups{4, 8, 16, 32, 64};
constexpr std::array kSquareGroups{4, 16, 64};
constexpr int kFixedGroups = 16;     // Fig. 3a
constexpr int kFixedWorkers = 1024;  // Fig. 3b

struct Point {
  std::string algorithm;
  int workers;
  int groups;
  double seconds;
};
struct Series {
  std::string name;
  std::vector<Point> points;
};
struct Figure {
  std::string name;
  std::string title;
  std::string x_label;
  std::vector<Series> series;
  bool is_by_groups() const { return x_label == "groups"; }
};
struct Statement {
  std::string paper;
  bool holds;
  std::string seen;
};

class Model {
 public:
  Model(const collective::LinkCost& link, std::size_t count, std::size_t element)
      : link_(link), count_(count), element_(element) {}

  Result<Point> at(const std::string& algorithm, int workers, int groups) const {
    ClosedFormCase of;
    of.ranks = workers;
    of.groups = groups;
    of.bytes = static_cast<double>(count_ * element_);
    of.within = of.between = link_;
    DUNLIN_ASSIGN(const double seconds, closed_form(algorithm, of));
    return Point{algorithm, workers, groups, seconds};
  }
  // Returns the relative difference between the prediction from the schedule and the formula.
  Result<double> difference(const Point& point) const {
    DUNLIN_ASSIGN(const auto* const algorithm,
                  collective::find_algorithm(collective::Collective::kAllReduce, point.algorithm));
    DUNLIN_ASSIGN(const auto grouping, collective::Grouping::even(point.workers, point.groups));
    collective::Shape shape;
    shape.groups = &grouping;
    std::vector<collective::Program> programs;
    for (int rank = 0; rank < point.workers; ++rank) {
      DUNLIN_ASSIGN(auto program,
                    collective::generate(
                        *algorithm, {collective::Collective::kAllReduce, point.workers, count_, 0},
                        shape, rank));
      programs.push_back(std::move(program));
    }
    DUNLIN_ASSIGN(const auto report, collective::predict(programs, element_,
                                                         collective::CostModel::uniform(link_, 0)));
    return std::abs(report.seconds / point.seconds - 1);
  }

 private:
  collective::LinkCost link_;
  std::size_t count_;
  std::size_t element_;
};

Result<std::vector<Figure>> make_figures(const Model& model) {
  std::vector<Figure> figures;
  Figure by_workers{"3a", "16 groups", "workers", {}};
  for (const char* const name : {"ring", "hierarchical", "torus-2d", "2d-tga"}) {
    Series& series = by_workers.series.emplace_back(Series{name, {}});
    for (const int workers : kWorkers) {
      DUNLIN_ASSIGN(auto point, model.at(name, workers, kFixedGroups));
      series.points.push_back(std::move(point));
    }
  }
  figures.push_back(std::move(by_workers));
  Figure by_groups{"3b", "1024 workers", "groups", {}};
  for (const char* const name : {"hierarchical", "2d-tga"}) {
    Series& series = by_groups.series.emplace_back(Series{name, {}});
    for (const int groups : kGroups) {
      DUNLIN_ASSIGN(auto point, model.at(name, kFixedWorkers, groups));
      series.points.push_back(std::move(point));
    }
  }
  figures.push_back(std::move(by_groups));
  Figure tga_by_workers{"4a", "2d-tga", "workers", {}};
  for (const int groups : kSquareGroups) {
    Series& series =
        tga_by_workers.series.emplace_back(Series{fmt::format("{} groups", groups), {}});
    for (const int workers : kWorkers) {
      if (workers < groups) continue;
      DUNLIN_ASSIGN(auto point, model.at("2d-tga", workers, groups));
      series.points.push_back(std::move(point));
    }
  }
  figures.push_back(std::move(tga_by_workers));
  Figure tga_by_groups{"4b", "2d-tga", "groups", {}};
  for (const int workers : {256, 512, 1024}) {
    Series& series =
        tga_by_groups.series.emplace_back(Series{fmt::format("{} workers", workers), {}});
    for (const int groups : kGroups) {
      DUNLIN_ASSIGN(auto point, model.at("2d-tga", workers, groups));
      series.points.push_back(std::move(point));
    }
  }
  figures.push_back(std::move(tga_by_groups));
  return figures;
}

const Series& series_of(const Figure& figure, std::string_view name) {
  return *std::ranges::find(figure.series, name, &Series::name);
}
double growth(const Series& series) {
  return series.points.back().seconds - series.points.front().seconds;
}

// Checks what section 5.1 of the paper says of its figures. Each statement has in parentheses how
// "steady" or "much" is understood here.
std::vector<Statement> judge(const std::vector<Figure>& figures) {
  std::vector<Statement> statements;
  const Series& ring = series_of(figures[0], "ring");
  const Series& torus = series_of(figures[0], "torus-2d");
  const Series& hierarchical = series_of(figures[0], "hierarchical");
  const Series& tga = series_of(figures[0], "2d-tga");
  const std::size_t last = kWorkers.size() - 1;

  const double slope = (ring.points[last].seconds - ring.points[last - 1].seconds) /
                       (ring.points[last - 1].seconds - ring.points[last - 2].seconds);
  statements.push_back({"3a: the time of the ring grows linearly with the workers",
                        slope > 1.9 && slope < 2.1,
                        fmt::format("from 512 to 1024 it grows {:.3f} times as much as from 256 "
                                    "to 512 (linear: 2)",
                                    slope)});
  statements.push_back(
      {"2.2: the torus takes less than the ring",
       torus.points[last].seconds < ring.points[last].seconds,
       fmt::format("{} against {} at 1024 workers", format_seconds(torus.points[last].seconds),
                   format_seconds(ring.points[last].seconds))});
  const double flat_tga = growth(tga) / growth(ring);
  const double flat_hierarchical = growth(hierarchical) / growth(ring);
  statements.push_back(
      {"3a: 2d-tga and hierarchical stay steady (grow by less than a tenth of what the ring does)",
       flat_tga < 0.1 && flat_hierarchical < 0.1,
       fmt::format(
           "from 16 to 1024 workers they grow by {:.1f} % and {:.1f} % of the ring's growth",
           100 * flat_tga, 100 * flat_hierarchical)});
  bool is_better = true;
  for (std::size_t i = 0; i <= last; ++i)
    is_better = is_better && tga.points[i].seconds < hierarchical.points[i].seconds;
  const auto saved = [](const Point& better, const Point& worse) {
    return 100 * (1 - better.seconds / worse.seconds);
  };
  statements.push_back({"3a: 2d-tga is slightly better than hierarchical", is_better,
                        fmt::format("{:.1f} % less time at 16 workers, {:.1f} % less at 1024",
                                    saved(tga.points[0], hierarchical.points[0]),
                                    saved(tga.points[last], hierarchical.points[last]))});
  bool gets_worse = true;
  for (std::size_t i = 1; i <= last; ++i) {
    gets_worse = gets_worse && ring.points[i].seconds / tga.points[i].seconds >
                                   ring.points[i - 1].seconds / tga.points[i - 1].seconds;
  }
  const double ratio = ring.points[last].seconds / tga.points[last].seconds;
  statements.push_back({"5.2: with more workers the ring gets worse and worse than 2d-tga",
                        gets_worse && ratio > 1,
                        fmt::format("at 1024 workers it takes {:.2f} times as long", ratio)});

  const auto& by_hierarchy = series_of(figures[1], "hierarchical").points;
  const auto& by_tga = series_of(figures[1], "2d-tga").points;
  const double few = by_hierarchy.front().seconds / by_tga.front().seconds;
  const double many = by_hierarchy.back().seconds / by_tga.back().seconds;
  statements.push_back(
      {"3b: with more groups 2d-tga is much better than hierarchical (1.5 times at 64)",
       many > 1.5 && many > few,
       fmt::format("hierarchical takes {:.2f} times as long with 4 groups, {:.2f} with 64", few,
                   many)});
  bool fewer_is_better = true;
  std::string best;
  for (const Series& series : figures[3].series) {
    for (std::size_t i = 1; i < series.points.size(); ++i) {
      fewer_is_better = fewer_is_better && series.points[i].seconds > series.points[i - 1].seconds;
    }
    const auto fastest = std::ranges::min_element(series.points, {}, &Point::seconds);
    best +=
        fmt::format("{}{} groups for {}", best.empty() ? "" : ", ", fastest->groups, series.name);
  }
  statements.push_back(
      {"4b: the fewer groups, the better 2d-tga", fewer_is_better, "the best are " + best});
  return statements;
}

std::string table(const Figure& figure) {
  std::string text =
      fmt::format("\nFig. {}, {}\n{:<10}", figure.name, figure.title, figure.x_label);
  std::map<int, std::vector<std::string>> rows;
  for (std::size_t i = 0; i < figure.series.size(); ++i) {
    text += fmt::format("{:>14}", figure.series[i].name);
    for (const Point& point : figure.series[i].points) {
      auto& row = rows[figure.is_by_groups() ? point.groups : point.workers];
      row.resize(figure.series.size(), "-");
      row[i] = format_seconds(point.seconds);
    }
  }
  text += "\n";
  for (const auto& [x, row] : rows) {
    text += fmt::format("{:<10}", x);
    for (const std::string& cell : row) text += fmt::format("{:>14}", cell);
    text += "\n";
  }
  return text;
}

Status write_json(const tools::Output& output, const Figure& figure) {
  for (const Series& series : figure.series) {
    for (const Point& point : series.points) {
      DUNLIN_TRY(output.json({{"figure", figure.name},
                              {"title", figure.title},
                              {"series", series.name},
                              {"x_label", figure.x_label},
                              {"x", figure.is_by_groups() ? point.groups : point.workers},
                              {"algorithm", point.algorithm},
                              {"workers", point.workers},
                              {"groups", point.groups},
                              {"seconds", point.seconds}}));
    }
  }
  return Status::ok();
}

}  // namespace

Status figures(const Words& words) {
  DUNLIN_ASSIGN(const collective::LinkCost link, parse_link(words.alpha, words.bandwidth));
  DUNLIN_ASSIGN(const std::size_t bytes, parse_size(words.size));
  if (bytes < words.element || (link.alpha == 0 && link.beta == 0))
    return {Code::kInvalidArgument, "figures need a size, and messages that cost something"};
  const Model model(link, bytes / words.element, words.element);
  DUNLIN_ASSIGN(const std::vector<Figure> all, make_figures(model));
  DUNLIN_ASSIGN(const auto output, tools::Output::open(words.json));
  double most = 0;
  for (const Figure& figure : all) {
    DUNLIN_TRY(output->text(table(figure)));
    DUNLIN_TRY(write_json(*output, figure));
    if (!words.check_schedules) continue;
    for (const Series& series : figure.series) {
      for (const Point& point : series.points) {
        DUNLIN_ASSIGN(const double difference, model.difference(point));
        most = std::max(most, difference);
      }
    }
  }
  DUNLIN_TRY(output->text("\nStatements of the paper, and whether they hold here:"));
  for (const Statement& statement : judge(all)) {
    DUNLIN_TRY(output->text(fmt::format("[{}] {}\n      {}", statement.holds ? "holds" : "FAILS",
                                        statement.paper, statement.seen)));
    DUNLIN_TRY(output->json(
        {{"statement", statement.paper}, {"holds", statement.holds}, {"seen", statement.seen}}));
  }
  if (!words.check_schedules) return Status::ok();
  DUNLIN_TRY(output->text(
      fmt::format("\nThe schedules themselves differ by at most {:.3f} %.", 100 * most)));
  return output->json({{"largest_difference", most}});
}

}  // namespace dunlin::schedule
