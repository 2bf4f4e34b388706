// The version of Dunlin: of these headers as macros, of the linked library as a function.
#pragma once

#include "runtime/version.h"

#define DUNLIN_VERSION_MAJOR 0
#define DUNLIN_VERSION_MINOR 2
#define DUNLIN_VERSION_PATCH 0
// The three numbers as one, for comparisons in the preprocessor: 1.2.3 is 10203.
#define DUNLIN_VERSION \
  (DUNLIN_VERSION_MAJOR * 10000 + DUNLIN_VERSION_MINOR * 100 + DUNLIN_VERSION_PATCH)
