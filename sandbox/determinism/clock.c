/* A preloaded clock: programs see the wall clock that WALL_CLOCK says, and every other clock as it is.
 *
 * WALL_CLOCK is "=SECONDS" (the clock stands at that second since 1970) or "+SECONDS" / "-SECONDS" (it runs, shifted). Anything else, or nothing, leaves the real clock.
 *
 * Rules: only CLOCK_REALTIME, its coarse and its TAI form are another; a standing monotonic clock would hang the CLI as soon as sub-agents run (facts/replay.md §4). A deadline that a
 * program made from the wall clock it sees is turned back into the real one, else it would have passed long ago, or never come. Functions of the C library are found when the library
 * is loaded; before that the kernel is asked. Also here: the C library's random functions always ask the kernel, so that the attendant (attend.c) answers newer libraries too, which would
 * take random bytes from the vDSO. Not covered: programs without a C library, times of files, calls made past the library (ADR 0012).
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* A deadline below this is one of a clock that counts from the start of the machine: none has run for 15 years, and no pinned date lies before 1985. */
#define NEVER_UPTIME 500000000

static bool standing, shifted;
static int64_t seconds;

static int (*real_gettime)(clockid_t, struct timespec *);
static int (*real_cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*real_cond_clockwait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
static int (*real_mutex_timedlock)(pthread_mutex_t *, const struct timespec *);
static int (*real_rdlock)(pthread_rwlock_t *, const struct timespec *);
static int (*real_wrlock)(pthread_rwlock_t *, const struct timespec *);
static int (*real_sem_timedwait)(sem_t *, const struct timespec *);
static int (*real_sem_clockwait)(sem_t *, clockid_t, const struct timespec *);
static int (*real_nanosleep)(clockid_t, int, const struct timespec *, struct timespec *);
static int (*real_timerfd)(int, int, const struct itimerspec *, struct itimerspec *);
static int (*real_timer)(timer_t, int, const struct itimerspec *, struct itimerspec *);

static void *find(const char *name, const char *version) {
  void *found = version ? dlvsym(RTLD_NEXT, name, version) : NULL;
  return found ? found : dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void begin(void) {
  const char *words = getenv("WALL_CLOCK");
  if (words && (*words == '=' || *words == '+' || *words == '-')) {
    char *end;
    errno = 0;
    long long value = strtoll(words + 1, &end, 10);
    if (errno == 0 && end != words + 1 && *end == 0 && value >= 0) {
      standing = *words == '=';
      shifted = !standing;
      seconds = *words == '-' ? -value : value;
    }
  }
  /* Since glibc 2.3.2 there are two sets of condition variables, and RTLD_NEXT finds the old one on x86_64. */
  real_cond_timedwait = find("pthread_cond_timedwait", "GLIBC_2.3.2");
  real_cond_clockwait = find("pthread_cond_clockwait", NULL);
  real_mutex_timedlock = find("pthread_mutex_timedlock", NULL);
  real_rdlock = find("pthread_rwlock_timedrdlock", NULL);
  real_wrlock = find("pthread_rwlock_timedwrlock", NULL);
  real_sem_timedwait = find("sem_timedwait", NULL);
  real_sem_clockwait = find("sem_clockwait", NULL);
  real_nanosleep = find("clock_nanosleep", "GLIBC_2.17");
  real_timerfd = find("timerfd_settime", NULL);
  real_timer = find("timer_settime", "GLIBC_2.3.3");
  real_gettime = find("clock_gettime", "GLIBC_2.17");
}

static int ask(clockid_t clock, struct timespec *now) {
  if (real_gettime)
    return real_gettime(clock, now);
  return (int)syscall(SYS_clock_gettime, clock, now);
}

static bool is_wall(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

/* Bring a real reading to what is seen. */
static void see(struct timespec *now) {
  if (standing) {
    now->tv_sec = (time_t)seconds;
    now->tv_nsec = 0;
  } else if (shifted) {
    now->tv_sec += (time_t)seconds;
  }
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = ask(clock, now);
  if (!failed && is_wall(clock))
    see(now);
  return failed;
}

EXPORT int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone; /* no kernel fills it in any more */
  struct timespec fine;
  if (ask(CLOCK_REALTIME, &fine))
    return -1;
  see(&fine);
  now->tv_sec = fine.tv_sec;
  now->tv_usec = fine.tv_nsec / 1000;
  return 0;
}

EXPORT time_t time(time_t *place) {
  struct timespec now;
  if (ask(CLOCK_REALTIME, &now))
    return (time_t)-1;
  see(&now);
  if (place)
    *place = now.tv_sec;
  return now.tv_sec;
}

EXPORT int timespec_get(struct timespec *now, int base) {
  if (base != TIME_UTC || ask(CLOCK_REALTIME, now))
    return 0;
  see(now);
  return base;
}

/* Turn a deadline by the seen clock into one by the real clock: as far from now as the program meant. */
static const struct timespec *real_deadline(const struct timespec *seen, struct timespec *real) {
  if (!seen || seen->tv_sec < NEVER_UPTIME || !(standing || shifted) || seen->tv_nsec < 0 || seen->tv_nsec > 999999999)
    return seen;
  if (shifted) {
    *real = *seen;
    real->tv_sec -= (time_t)seconds;
    return real;
  }
  if (ask(CLOCK_REALTIME, real))
    return seen;
  int64_t away = (int64_t)seen->tv_sec - seconds;
  if (away < 0)
    away = 0;
  if (away > INT32_MAX)
    away = INT32_MAX;
  real->tv_sec += (time_t)away;
  real->tv_nsec += seen->tv_nsec;
  if (real->tv_nsec > 999999999) {
    real->tv_nsec -= 1000000000;
    real->tv_sec++;
  }
  return real;
}

EXPORT int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                                  const struct timespec *restrict deadline) {
  struct timespec real;
  return real_cond_timedwait(condition, mutex, real_deadline(deadline, &real));
}

EXPORT int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, clockid_t clock,
                                  const struct timespec *restrict deadline) {
  struct timespec real;
  return real_cond_clockwait(condition, mutex, clock, is_wall(clock) ? real_deadline(deadline, &real) : deadline);
}

EXPORT int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict deadline) {
  struct timespec real;
  return real_mutex_timedlock(mutex, real_deadline(deadline, &real));
}

EXPORT int pthread_rwlock_timedrdlock(pthread_rwlock_t *restrict lock, const struct timespec *restrict deadline) {
  struct timespec real;
  return real_rdlock(lock, real_deadline(deadline, &real));
}

EXPORT int pthread_rwlock_timedwrlock(pthread_rwlock_t *restrict lock, const struct timespec *restrict deadline) {
  struct timespec real;
  return real_wrlock(lock, real_deadline(deadline, &real));
}

EXPORT int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict deadline) {
  struct timespec real;
  return real_sem_timedwait(semaphore, real_deadline(deadline, &real));
}

EXPORT int sem_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict deadline) {
  struct timespec real;
  return real_sem_clockwait(semaphore, clock, is_wall(clock) ? real_deadline(deadline, &real) : deadline);
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
  struct timespec real;
  bool turn = (flags & TIMER_ABSTIME) && is_wall(clock);
  return real_nanosleep(clock, flags, turn ? real_deadline(until, &real) : until, left);
}

static const struct itimerspec *real_timing(bool absolute, const struct itimerspec *seen, struct itimerspec *real) {
  if (!absolute || !seen || (seen->it_value.tv_sec == 0 && seen->it_value.tv_nsec == 0))
    return seen;
  *real = *seen;
  real->it_value = *real_deadline(&seen->it_value, &(struct timespec){0});
  return real;
}

EXPORT int timerfd_settime(int descriptor, int flags, const struct itimerspec *timing, struct itimerspec *old) {
  struct itimerspec real;
  return real_timerfd(descriptor, flags, real_timing(flags & TFD_TIMER_ABSTIME, timing, &real), old);
}

EXPORT int timer_settime(timer_t timer, int flags, const struct itimerspec *restrict timing,
                         struct itimerspec *restrict old) {
  struct itimerspec real;
  return real_timer(timer, flags, real_timing(flags & TIMER_ABSTIME, timing, &real), old);
}

EXPORT ssize_t getrandom(void *place, size_t count, unsigned flags) {
  return syscall(SYS_getrandom, place, count, flags);
}

EXPORT int getentropy(void *place, size_t count) {
  if (count > 256) {
    errno = EIO;
    return -1;
  }
  for (size_t done = 0; done < count;) {
    ssize_t more = syscall(SYS_getrandom, (char *)place + done, count - done, 0);
    if (more > 0)
      done += (size_t)more;
    else if (errno != EINTR)
      return -1;
  }
  return 0;
}

EXPORT void arc4random_buf(void *place, size_t count) {
  for (size_t done = 0; done < count;) {
    size_t piece = count - done < 256 ? count - done : 256;
    if (getentropy((char *)place + done, piece))
      abort();
    done += piece;
  }
}

EXPORT uint32_t arc4random(void) {
  uint32_t value;
  arc4random_buf(&value, sizeof value);
  return value;
}

EXPORT uint32_t arc4random_uniform(uint32_t bound) {
  if (bound < 2)
    return 0;
  uint32_t value, lowest = -bound % bound;
  do
    value = arc4random();
  while (value < lowest);
  return value % bound;
}
