// Precompiled for the tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/pch/library.h"
