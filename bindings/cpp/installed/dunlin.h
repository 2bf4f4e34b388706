/* For C programs that include <dunlin.h>; <dunlin/dunlin.h> is the same. */
#pragma once

#include <dunlin/dunlin.h>
