/* EXPECT, for test programs in C: if the condition doesn't hold, the rank prints Dunlin's last
 * error and exits. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "bindings/c/dunlin.h"

#define EXPECT(condition)                                                             \
  do {                                                                                \
    if (!(condition)) {                                                               \
      fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition, \
              dunlin_last_error());                                                   \
      exit(1);                                                                        \
    }                                                                                 \
  } while (0)
#define EXPECT_OK(call) EXPECT((call) == DUNLIN_OK)
