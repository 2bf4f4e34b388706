#!/bin/sh
# Runs a test. GoogleTest reports its cases in a folder of this run's own below TEST_REPORTS, which is printed first.
report=$(mktemp -d "$TEST_REPORTS/XXXXXX")
echo "report: $report"
GTEST_OUTPUT=json:$report/
export GTEST_OUTPUT
# A case that runs again, alone, may belong to any shard.
[ -z "${TEST_ALONE:-}" ] || unset GTEST_TOTAL_SHARDS GTEST_SHARD_INDEX
exec "$@"
