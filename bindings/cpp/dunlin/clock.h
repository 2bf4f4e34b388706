#pragma once

#include "runtime/clock.h"
