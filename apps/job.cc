#include "apps/job.h"

#include "runtime/log.h"

namespace dunlin {

int fail(const Status& status) {
  DUNLIN_ERROR("{}", status.to_string());
  const Code code = status.code();
  const bool is_the_users =
      code == Code::kInvalidArgument || code == Code::kNotFound || code == Code::kCorrupted;
  return is_the_users ? 2 : 1;
}

int run_job(const std::string& transport, const JobBody& body) {
  Environment environment = Environment::of_process();
  if (!transport.empty()) environment.set("DUNLIN_TRANSPORTS", transport);
  const auto config = Config::parse(environment);
  if (!config) return body.fail(config.status());
  configure_log(config->log_level, Rank());
  auto bootstrap = Bootstrap::join(*config, environment);
  if (!bootstrap) return body.fail(bootstrap.status());
  configure_log(config->log_level, (*bootstrap)->rank());
  const auto outcome = body.run(**bootstrap, *config);
  if (!outcome) return body.fail(outcome.status());
  return *outcome ? 0 : 3;
}

}  // namespace dunlin
