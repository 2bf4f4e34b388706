#include "tools/dunlin-run/job_report.h"

#include "runtime/bootstrap/secret.h"
#include "runtime/flight/folder.h"
#include "runtime/flight/report.h"

namespace dunlin::run {

Status JobReport::check() const {
  if (config_.flight != "off") return Status::ok();
  return {Code::kInvalidArgument,
          "--report needs the ranks' flight records, but DUNLIN_FLIGHT=off"};
}

void JobReport::prepare(Environment& environment) {
  environment.set("DUNLIN_FLIGHT_KEEP", "on");
}

std::string JobReport::take(const std::string& job_id, const std::string& secret,
                            bool is_well) const {
  const std::string name = flight::job_name(job_id, bootstrap::derive_key(secret, job_id));
  const std::string folder = flight::base_folder(config_) + "/" + name;
  std::string text = flight::report_on(folder);
  if (is_well && !config_.flight_keep) flight::remove_job(folder);
  return text;
}

}  // namespace dunlin::run
