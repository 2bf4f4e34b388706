/* EXPECT, for programs in C that are tests: what is not as expected ends the rank, with Dunlin's
 * last error. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "collectives/bindings/c/dunlin.h"

#define EXPECT(condition)                                                             \
  do {                                                                                \
    if (!(condition)) {                                                               \
      fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition, \
              dunlin_last_error());                                                   \
      exit(1);                                                                        \
    }                                                                                 \
  } while (0)
#define EXPECT_OK(call) EXPECT((call) == DUNLIN_OK)
