// What a JobView says, in sentences. Stateless. Any thread.
#pragma once

#include <string>

#include "runtime/flight/job_view.h"

namespace dunlin::flight {

class Recorder;

// "rank 3 is slow: ranks 0, 1 and 2 wait for it 64 % of their time; its steps take 3.0 times the
// median (30.1 ms, median 10.0 ms)".
std::string sentence(const Straggler& straggler, const JobView& job);

// The report on a job's whole time, or on its time so far: which ranks were waited for, by which
// others, and which are dead, have failed or met an error. Whole lines.
std::string report(const JobView& job);

// The same for the records in a folder. Says so if there are none.
std::string report_on(const std::string& folder);

// A wait of this rank has reached its deadline, with this error: logs the report on the ranks of
// this host, or one line if another rank has just done so.
void report_deadline(Recorder& recorder, const Status& error);

}  // namespace dunlin::flight
