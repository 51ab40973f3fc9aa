/* libcuda.so.1 and libnvidia-ml.so.1 of a machine with one GPU, as far as TensorFlow asks before it registers the GPU.
   Nothing can be computed by it. */
#include <stdio.h>
#include <string.h>

static int context;

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = 12090; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "Pretended"); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 4ul << 30; return 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, 7, 16); return 0; }
int cuDeviceGetPCIBusId(char *id, int size, int device) { snprintf(id, size, "0000:00:1e.0"); return 0; }
int cuDevicePrimaryCtxRetain(void **found, int device) { *found = &context; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0; *active = 1; return 0; }
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { return 0; }
int cuCtxGetCurrent(void **found) { *found = &context; return 0; }
int cuCtxSetCurrent(void *wanted) { return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuMemGetInfo_v2(size_t *idle, size_t *all) { *idle = 3ul << 30; *all = 4ul << 30; return 0; }
int cuGetErrorName(int error, const char **name) { *name = "PRETENDED"; return 0; }
int cuGetErrorString(int error, const char **text) { *text = "pretended"; return 0; }

/* Compute capability 8.0; of the rest, what is divided by must not be 0. */
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? 8 : attribute == 76 ? 0 : attribute == 10 ? 32 : 1024;
    return 0;
}

int nvmlInit(void) { return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *version, unsigned size) { snprintf(version, size, "575.57.08"); return 0; }
