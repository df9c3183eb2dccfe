/* What a card measures: use, memory, power, heat, clocks, errors, processes. */
#include "nvml.h"

#include <string.h>

enum { IDLE_MIB = 500, IDLE_MW = 60000, BUSY_MW = 350000, MAX_SM_MHZ = 1410, MEM_MHZ = 1593 };
enum { FIELD_MEMORY_TEMP = 82, FIELD_ENERGY = 83, FIELD_POWER_AVERAGE = 185, FIELD_POWER = 186 };
enum { NO_INSTANCE = 0xFFFFFFFFu };

struct utilization { unsigned gpu, memory; };
struct memory { u64 total, free, used; };
struct memory_v2 { unsigned version; u64 total, reserved, free, used; };
struct temperature { unsigned version, sensor; int temperature; };
struct process_info { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; };
struct process_sample { unsigned pid; u64 time; unsigned sm, memory, encoder, decoder; };
struct gpm_support { unsigned version, supported; };
struct field_value {
    uint32_t field, scope;
    int64_t timestamp, latency_us;
    unsigned type;
    nvmlReturn_t status;
    union { unsigned ui; u64 ull; } value;
};

double card_power_mw(const struct card *card) {
    if (card->power_mw >= 0) return (double)card->power_mw;
    return IDLE_MW + (BUSY_MW - IDLE_MW) * card->util_now / 100;
}

static u64 memory_used_mib(const struct card *card) {
    u64 total = (u64)card->memory_total_mib, used = IDLE_MIB;
    if (card->memory_used_mib >= 0) used = (u64)card->memory_used_mib;
    else for (int i = 0; i < card->process_count; i++) used += card->processes[i].memory_mib;
    return used < total ? used : total;
}

static int temperature_now(const struct card *card) {
    return card->temperature >= 0 ? (int)card->temperature : 32 + (int)(card->util_now * 0.4);
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, struct utilization *rates) {
    NEED(rates);
    OPEN(card);
    if (device->part >= 0 || card.mig > 0) return NOT_SUPPORTED;
    rates->gpu = (unsigned)(card.util_now + 0.5);
    rates->memory = rates->gpu / 2;
    return SUCCESS;
}

static nvmlReturn_t side_engine(unsigned *util, unsigned *period_us) {
    *util = 0;
    *period_us = 167000;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned *util,
                                                    unsigned *period_us) {
    NEED(util && period_us);
    OPEN(card);
    return card.mig > 0 ? NOT_SUPPORTED : side_engine(util, period_us);
}

EXPORT nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned *util,
                                                    unsigned *period_us) {
    NEED(util && period_us);
    OPEN(card);
    return card.mig > 0 ? NOT_SUPPORTED : side_engine(util, period_us);
}

/* A MIG device has an equal share of its card. */
static u64 share(nvmlDevice_t device, const struct card *card, u64 mib) {
    u64 parts = device->part < 0 || card->mig_devices < 1 ? 1 : (u64)card->mig_devices;
    return mib * MIB / parts;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct memory *memory) {
    NEED(memory);
    OPEN(card);
    memory->total = share(device, &card, (u64)card.memory_total_mib);
    memory->used = share(device, &card, memory_used_mib(&card));
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

/* Version 2 tells apart what the driver keeps for itself. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory_v2 *memory) {
    NEED(memory);
    OPEN(card);
    if (memory->version != (sizeof *memory | 2u << 24)) return VERSION_MISMATCH;
    u64 used = memory_used_mib(&card), reserved = used < IDLE_MIB ? used : IDLE_MIB;
    memory->total = share(device, &card, (u64)card.memory_total_mib);
    memory->reserved = share(device, &card, reserved);
    memory->used = share(device, &card, used) - memory->reserved;
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, struct memory *memory) {
    NEED(memory);
    OPEN(card);
    memory->total = 131072 * MIB;
    memory->used = 4 * MIB;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts) {
    NEED(milliwatts);
    OPEN(card);
    if (device->part >= 0) return NOT_SUPPORTED;
    *milliwatts = (unsigned)card_power_mw(&card);
    return SUCCESS;
}

static nvmlReturn_t power_limit(const struct card *card, unsigned *milliwatts) {
    *milliwatts = (unsigned)card->power_limit_mw;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *milliwatts) {
    NEED(milliwatts);
    OPEN(card);
    return power_limit(&card, milliwatts);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned *milliwatts) {
    NEED(milliwatts);
    OPEN(card);
    return power_limit(&card, milliwatts);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device,
                                                             unsigned *milliwatts) {
    NEED(milliwatts);
    OPEN(card);
    return power_limit(&card, milliwatts);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device,
                                                                 unsigned *low, unsigned *high) {
    NEED(low && high);
    OPEN(card);
    *low = 100000;
    return power_limit(&card, high);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, unsigned *mode) {
    NEED(mode);
    OPEN(card);
    *mode = 1;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, u64 *millijoules) {
    NEED(millijoules);
    OPEN(card);
    if (device->part >= 0) return NOT_SUPPORTED;
    *millijoules = (u64)read_energy_mj(&card, card_power_mw(&card));
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor,
                                             unsigned *temperature) {
    NEED(temperature && !sensor);
    OPEN(card);
    *temperature = (unsigned)temperature_now(&card);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, struct temperature *answer) {
    NEED(answer && !answer->sensor);
    OPEN(card);
    if (answer->version != (sizeof *answer | 1u << 24)) return VERSION_MISMATCH;
    answer->temperature = temperature_now(&card);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned kind,
                                                      unsigned *temperature) {
    NEED(temperature);
    OPEN(card);
    static const unsigned limits[] = {92, 89, 95, 85};
    if (kind >= sizeof limits / sizeof *limits) return NOT_SUPPORTED;
    *temperature = limits[kind];
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned kind, unsigned *mhz) {
    NEED(mhz && kind < 4);
    OPEN(card);
    unsigned sm = card.util_now > 0 ? MAX_SM_MHZ : 210;
    if (card.sm_clock_mhz >= 0) sm = (unsigned)card.sm_clock_mhz;
    *mhz = kind == 2 ? (unsigned)MEM_MHZ : sm;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned kind, unsigned *mhz) {
    NEED(mhz && kind < 4);
    OPEN(card);
    *mhz = kind == 2 ? MEM_MHZ : MAX_SM_MHZ;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned *state) {
    NEED(state);
    OPEN(card);
    *state = 0;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, u64 *reasons) {
    NEED(reasons);
    OPEN(card);
    *reasons = card.util_now > 0 ? 0 : 1; /* none, or idle */
    if (card.clocks_event_reasons >= 0) *reasons = (u64)card.clocks_event_reasons;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, u64 *reasons) {
    return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned kind,
                                                unsigned counter, u64 *count) {
    NEED(count && kind < 2 && counter < 2);
    OPEN(card);
    *count = (u64)(kind ? card.ecc_uncorrected : card.ecc_corrected);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned kind,
                                                    unsigned counter, unsigned place,
                                                    u64 *count) {
    NEED(count && kind < 2 && counter < 2);
    OPEN(card);
    if (place > 7) return INVALID_ARGUMENT;
    *count = place == 2 ? (u64)(kind ? card.ecc_uncorrected : card.ecc_corrected) : 0;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected,
                                              unsigned *uncorrected, unsigned *pending,
                                              unsigned *failed) {
    NEED(corrected && uncorrected && pending && failed);
    OPEN(card);
    *corrected = *uncorrected = *pending = *failed = 0;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned *pending) {
    NEED(pending);
    OPEN(card);
    *pending = 0;
    return SUCCESS;
}

static nvmlReturn_t list_processes(const struct card *card, unsigned *count,
                                   struct process_info *into) {
    unsigned room = *count;
    *count = (unsigned)card->process_count;
    if (!*count) return SUCCESS;
    if (room < *count || !into) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) {
        const struct process *process = &card->processes[i];
        into[i] = (struct process_info){process->pid, process->memory_mib * MIB, NO_INSTANCE,
                                        NO_INSTANCE};
    }
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                            struct process_info *into) {
    NEED(count);
    OPEN(card);
    return list_processes(&card, count, into);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                            struct process_info *into) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, into);
}

static nvmlReturn_t no_processes(unsigned *count) {
    *count = 0;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                             struct process_info *into) {
    NEED(count);
    OPEN(card);
    (void)into;
    return no_processes(count);
}

EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device,
                                                               unsigned *count,
                                                               struct process_info *into) {
    NEED(count);
    OPEN(card);
    (void)into;
    return no_processes(count);
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                    struct process_sample *into, unsigned *count,
                                                    u64 since_us) {
    NEED(count);
    OPEN(card);
    (void)since_us;
    if (card.mig > 0) return NOT_SUPPORTED;
    if (!card.process_count) return NOT_FOUND;
    unsigned room = *count;
    *count = (unsigned)card.process_count;
    if (!into || room < *count) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) {
        into[i] = (struct process_sample){card.processes[i].pid, (u64)(wall_clock() * 1e6),
                                          card.processes[i].util, 0, 0, 0};
    }
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned kind, u64 since_us,
                                         unsigned *type, unsigned *count, void *into) {
    OPEN(card);
    (void)kind, (void)since_us, (void)type, (void)count, (void)into;
    return NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, struct gpm_support *answer) {
    NEED(answer);
    OPEN(card);
    answer->supported = 0;
    return SUCCESS;
}

static void read_field(const struct card *card, struct field_value *value) {
    value->timestamp = (int64_t)(wall_clock() * 1e6);
    value->latency_us = 0;
    value->type = 1;
    value->status = SUCCESS;
    memset(&value->value, 0, sizeof value->value);
    if (value->field == FIELD_POWER || value->field == FIELD_POWER_AVERAGE) {
        value->value.ui = (unsigned)card_power_mw(card);
    } else if (value->field == FIELD_MEMORY_TEMP) {
        value->value.ui = (unsigned)temperature_now(card) + 4;
    } else if (value->field == FIELD_ENERGY) {
        value->type = 3;
        value->value.ull = (u64)read_energy_mj(card, card_power_mw(card));
    } else {
        value->status = NOT_SUPPORTED;
    }
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count,
                                             struct field_value *values) {
    NEED(values && count > 0);
    OPEN(card);
    for (int i = 0; i < count; i++) read_field(&card, &values[i]);
    return SUCCESS;
}
