#pragma once

#include "runtime/rank.h"
