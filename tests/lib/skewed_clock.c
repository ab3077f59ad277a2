/* Clocks that go wrong, for tests: preloaded into a process, it changes what that process reads.
 *
 * COQUINA_CLOCK_DRIFT_PPM   all clocks run faster by so many millionths, or slower if it is negative
 * COQUINA_WALL_CLOCK_FILE   the number of seconds in this file is added to the wall clock; it may change at any time
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long long drift_ppm, wall_seconds;
static const char *wall_file;
static struct timespec wall_read_at;
static struct timespec began[16];

static int clock_of_kernel(clockid_t clock, struct timespec *time) { return (int)syscall(SYS_clock_gettime, clock, time); }

__attribute__((constructor)) static void begin(void) {
    const char *drift = getenv("COQUINA_CLOCK_DRIFT_PPM");
    drift_ppm = drift ? atoll(drift) : 0;
    wall_file = getenv("COQUINA_WALL_CLOCK_FILE");
    for (clockid_t clock = 0; clock < 16; clock++) clock_of_kernel(clock, &began[clock]);
}

static void read_wall_file(void) {
    char text[32] = {0};
    int file = open(wall_file, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    if (read(file, text, sizeof text - 1) > 0) wall_seconds = atoll(text);
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = clock_of_kernel(clock, time);
    if (result != 0 || clock < 0 || clock >= 16 || clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID)
        return result;
    long long since = (time->tv_sec - began[clock].tv_sec) * 1000000000LL + time->tv_nsec - began[clock].tv_nsec;
    long long ns = time->tv_nsec + since / 1000000 * drift_ppm;
    time->tv_sec += ns / 1000000000;
    ns %= 1000000000;
    if (ns < 0) ns += 1000000000, time->tv_sec--;
    time->tv_nsec = ns;
    if (clock == CLOCK_REALTIME && wall_file) {
        if (time->tv_sec != wall_read_at.tv_sec) {
            wall_read_at = *time;
            read_wall_file();
        }
        time->tv_sec += wall_seconds;
    }
    return 0;
}
