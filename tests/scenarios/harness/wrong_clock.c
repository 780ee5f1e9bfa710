/* The clock of a machine that is wrong, for a program that is started with LD_PRELOAD of this: see clock.rs. Only the date
 * is; what counts how long something takes is right. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    long code = syscall(SYS_clock_gettime, clock, now);
    if (code == 0 && clock == CLOCK_REALTIME)
        now->tv_sec += AHEAD;
    return (int)code;
}
