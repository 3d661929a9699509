// What it is: the whole public API of the device runtime.
#pragma once

#include "mojo/allocation_policy.h"
#include "mojo/cache.h"
#include "mojo/completion_flag.h"
#include "mojo/copy_plan.h"
#include "mojo/device_context.h"
#include "mojo/device_event.h"
#include "mojo/device_ptr.h"
#include "mojo/device_stream.h"
#include "mojo/error.h"
#include "mojo/host_task.h"
#include "mojo/pinned.h"
#include "mojo/process.h"
#include "mojo/status.h"
