#pragma once

#include "runtime/counters.h"
