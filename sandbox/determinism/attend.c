/* The attendant: starts a program and answers getrandom and uname for it and everything below it. Runs inside the sandbox, as the program's parent.
 *
 *     attend SEED RELEASE VERSION MACHINE NODE PROGRAM ARGUMENT...
 *
 * SEED is 64 hexadecimal digits; the next four are what uname says. Exit status: the program's, in a shell's encoding (128 + N after signal N); 125 with a line on stderr where the
 * attendant itself failed.
 *
 * Rules:
 * - The filter asks the attendant about these two calls and allows every other one. The sandbox's own filter was loaded before and is stronger: the kernel takes the harder of the
 *   two answers, so that nothing which it refuses is ever asked here, and the attendant lives under it as well.
 * - A thread gets the stream of its name: the command lines of its process and of the processes that this descends from, and its own name unless it is the first thread; the n-th
 *   thread with this name, and its m-th call. Numbers of processes are no part of it, since chance decides in which order threads take them, and neither is what other threads ask: a
 *   helper of the CLI asks now and then. Hexadecimal digits of command lines are no part of it either: agents side by side draw the CLI's random file names in the order in which they are
 *   answered. A call counts once its answer was taken: one that a signal interrupted is asked again and gets the same bytes.
 * - The program and all below it get one processor. The CLI draws its ids from generators of its own, which it seeds once, so that an id depends on the order of all draws; with one
 *   processor that order is the same but for a time slice that ends at a bad moment (ADR 0012 has the figures).
 * - Memory of the asking process is written through /proc/PID/mem, and only after the kernel has confirmed, with the file open, that it still asks (seccomp_unotify(2)). A process that
 *   cannot be written to (it made itself undumpable) gets the kernel's own answer, and a line on stderr says so.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OWN_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OWN_ARCH AUDIT_ARCH_AARCH64
#else
#error "x86_64 or aarch64"
#endif

#define FAILED 125
#define MOST ((uint64_t)33554431) /* bytes of one getrandom call, as in drivers/char/random.c */
#define KNOWN_FLAGS 7u

static _Noreturn void fail(const char *what) {
  int number = errno;
  fprintf(stderr, "hermeval pinned: %s: %s\n", what, strerror(number));
  exit(FAILED);
}

/* --- the stream: ChaCha20 (RFC 8439) under the seed --- */

static uint32_t seed[8];

static uint32_t rotate(uint32_t value, int count) { return value << count | value >> (32 - count); }

static void quarter(uint32_t *s, int a, int b, int c, int d) {
  s[a] += s[b], s[d] = rotate(s[d] ^ s[a], 16);
  s[c] += s[d], s[b] = rotate(s[b] ^ s[c], 12);
  s[a] += s[b], s[d] = rotate(s[d] ^ s[a], 8);
  s[c] += s[d], s[b] = rotate(s[b] ^ s[c], 7);
}

static void block(const uint32_t place[4], uint8_t out[64]) {
  uint32_t start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}, state[16];
  memcpy(start + 4, seed, sizeof seed);
  memcpy(start + 12, place, 4 * sizeof *place);
  memcpy(state, start, sizeof state);
  for (int round = 0; round < 10; round++) {
    for (int i = 0; i < 4; i++)
      quarter(state, i, 4 + i, 8 + i, 12 + i);
    for (int i = 0; i < 4; i++)
      quarter(state, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4);
  }
  for (int i = 0; i < 16; i++) {
    uint32_t word = state[i] + start[i];
    for (int byte = 0; byte < 4; byte++)
      out[4 * i + byte] = (uint8_t)(word >> (8 * byte));
  }
}

static int digit_of(char text) {
  return text >= '0' && text <= '9' ? text - '0' : text >= 'a' && text <= 'f' ? text - 'a' + 10 : -1;
}

static bool read_seed(const char *text) {
  if (strlen(text) != 64)
    return false;
  for (int i = 0; i < 32; i++) {
    int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
    if (high < 0 || low < 0)
      return false;
    seed[i / 4] |= (uint32_t)(high << 4 | low) << 8 * (i % 4);
  }
  return true;
}

/* --- who asks --- */

struct asker {
  pid_t thread;
  uint32_t line; /* of its command line, to the letter: a process that becomes another program asks as another */
  uint32_t name;
  uint32_t which; /* among the threads with that name, in the order of their first call */
  uint32_t calls; /* answered so far */
};
static struct asker *askers;
static size_t known, room;

static bool read_file(pid_t pid, const char *name, char *out, size_t size, size_t *length) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return false;
  ssize_t got, all = 0;
  while ((size_t)all < size && (got = read(file, out + all, size - (size_t)all)) > 0)
    all += got;
  close(file);
  *length = (size_t)all;
  return true;
}

/* A number from a thread's status file; fallback where it is gone. */
static pid_t number_of(pid_t thread, const char *field, pid_t fallback) {
  char text[4096];
  size_t length;
  if (!read_file(thread, "status", text, sizeof text - 1, &length))
    return fallback;
  text[length] = 0;
  const char *line = strstr(text, field);
  return line ? (pid_t)atoi(line + strlen(field)) : fallback;
}

#define NOTHING 2166136261u
/* FNV-1a, of bytes after those that gave hash. */
static uint32_t mix(uint32_t hash, const char *bytes, size_t length, bool digits) {
  for (size_t i = 0; i < length; i++) {
    bool digit = (bytes[i] >= '0' && bytes[i] <= '9') || (bytes[i] >= 'a' && bytes[i] <= 'f');
    if (digits || !digit)
      hash = (hash ^ (uint8_t)bytes[i]) * 16777619u;
  }
  return hash;
}

static struct asker *find_asker(pid_t thread) {
  static char words[131072];
  char title[64];
  size_t length, letters = 0;
  pid_t process = number_of(thread, "\nTgid:", thread);
  uint32_t line = NOTHING;
  if (read_file(process, "cmdline", words, sizeof words, &length))
    line = mix(line, words, length, true);
  if (thread != process && read_file(thread, "comm", title, sizeof title, &letters))
    line = mix(line, title, letters, true);
  for (size_t i = known; i-- > 0;)
    if (askers[i].thread == thread && askers[i].line == line)
      return &askers[i];
  uint32_t name = mix(NOTHING, title, letters, true), which = 0;
  for (pid_t above = process; above > 1 && above != getpid(); above = number_of(above, "\nPPid:", 0))
    if (read_file(above, "cmdline", words, sizeof words, &length))
      name = mix(name, words, length, false);
  for (size_t i = 0; i < known; i++)
    which += askers[i].name == name;
  if (known == room) {
    room = room ? 2 * room : 64;
    askers = realloc(askers, room * sizeof *askers);
    if (!askers)
      fail("memory");
  }
  askers[known] = (struct asker){thread, line, name, which, 0};
  return &askers[known++];
}

/* --- answers --- */

static struct {
  char field[6][65];
} machine; /* struct utsname as the kernel writes it */

static int listener = -1;

static bool still_asks(uint64_t id) { return ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0; }

static bool put(int memory, const void *bytes, size_t count, uint64_t address) {
  return pwrite(memory, bytes, count, (off_t)address) == (ssize_t)count;
}

/* Write count bytes of the asker's stream; how many could be written. */
static uint64_t put_random(int memory, uint64_t address, uint64_t count, const struct asker *asker) {
  uint32_t place[4] = {0, asker->name, asker->which, asker->calls};
  uint64_t done = 0;
  while (done < count) {
    uint8_t bytes[4096];
    size_t piece = count - done < sizeof bytes ? (size_t)(count - done) : sizeof bytes;
    for (size_t i = 0; i < piece; i += 64, place[0]++)
      block(place, bytes + i);
    if (!put(memory, bytes, piece, address + done))
      break;
    done += piece;
  }
  return done;
}

static void answer(const struct seccomp_notif *asked, struct seccomp_notif_resp *said) {
  static bool told;
  struct asker *asker = NULL;
  char path[64];
  *said = (struct seccomp_notif_resp){.id = asked->id};
  snprintf(path, sizeof path, "/proc/%d/mem", asked->pid);
  int memory = open(path, O_WRONLY | O_CLOEXEC);
  if (memory < 0 && still_asks(asked->id)) {
    said->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    if (!told)
      fprintf(stderr, "hermeval pinned: a process was answered by the kernel itself, its memory cannot be written: %s\n", strerror(errno));
    told = true;
  } else if (memory >= 0 && still_asks(asked->id)) {
    if (asked->data.nr == SYS_uname) {
      said->error = put(memory, &machine, sizeof machine, asked->data.args[0]) ? 0 : -EFAULT;
    } else if ((uint32_t)asked->data.args[2] & ~KNOWN_FLAGS) {
      said->error = -EINVAL;
    } else {
      asker = find_asker((pid_t)asked->pid);
      uint64_t count = asked->data.args[1] < MOST ? asked->data.args[1] : MOST;
      uint64_t done = still_asks(asked->id) ? put_random(memory, asked->data.args[0], count, asker) : 0;
      said->val = (int64_t)done;
      said->error = count && !done ? -EFAULT : 0;
    }
  }
  if (memory >= 0)
    close(memory);
  if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, said)) {
    if (errno != ENOENT && errno != EINPROGRESS)
      fail("answering");
  } else if (asker && !said->error) {
    asker->calls++;
  }
}

/* --- the program --- */

/* Load the filter in this process; the descriptor on which it asks. */
static int load_filter(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCH, 0, 4), /* the sandbox's own filter ends programs of other kinds */
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrandom, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_uname, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) /* the sandbox has set it already */
    return -1;
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static void send_descriptor(int channel, int descriptor) {
  char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
  memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
  if (sendmsg(channel, &message, MSG_NOSIGNAL) != 1)
    fail("handing over");
}

static int receive_descriptor(int channel) {
  char byte, control[CMSG_SPACE(sizeof(int))];
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  ssize_t got;
  do
    got = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  struct cmsghdr *head = got == 1 ? CMSG_FIRSTHDR(&message) : NULL;
  int descriptor = -1;
  if (head && head->cmsg_type == SCM_RIGHTS)
    memcpy(&descriptor, CMSG_DATA(head), sizeof descriptor);
  return descriptor;
}

static _Noreturn void become(int channel, const sigset_t *mask, char **argv) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET((size_t)sched_getcpu(), &one); /* where a process just made was put: the least busy one */
  if (sched_setaffinity(0, sizeof one, &one))
    fail("one processor");
  int asks = load_filter();
  if (asks < 0)
    fail("the kernel gives no notifications of system calls (seccomp)");
  send_descriptor(channel, asks);
  close(asks);
  close(channel);
  sigprocmask(SIG_SETMASK, mask, NULL);
  execv(argv[0], argv);
  fail(argv[0]);
}

/* Reap what ended; the status of the program where that is among it, else -1. Orphans come here too, so that whoever may be written to is below us (Yama). */
static int reap(pid_t program) {
  int status, found = -1;
  pid_t ended;
  while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
    for (size_t i = 0; i < known; i++)
      if (askers[i].thread == ended)
        askers[i].thread = 0; /* its number may be given to another */
    if (ended == program)
      found = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return found;
}

static _Noreturn void attend(pid_t program, int ends) {
  struct seccomp_notif_sizes sizes;
  if (syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes))
    fail("sizes");
  size_t in = sizes.seccomp_notif > sizeof(struct seccomp_notif) ? sizes.seccomp_notif : sizeof(struct seccomp_notif);
  size_t out = sizes.seccomp_notif_resp > sizeof(struct seccomp_notif_resp) ? sizes.seccomp_notif_resp : sizeof(struct seccomp_notif_resp);
  struct seccomp_notif *asked = malloc(in);
  struct seccomp_notif_resp *said = calloc(1, out);
  if (!asked || !said)
    fail("memory");
  struct pollfd wait[2] = {{ends, POLLIN, 0}, {listener, POLLIN, 0}};
  for (;;) {
    if (poll(wait, 2, -1) < 0) {
      if (errno != EINTR)
        fail("waiting");
      continue; /* what it said before is no answer: asking for a call that is not there would block */
    }
    if (wait[0].revents) {
      struct signalfd_siginfo signal;
      if (read(ends, &signal, sizeof signal) < 0 && errno != EAGAIN)
        fail("signals");
      int status = reap(program);
      if (status >= 0)
        exit(status);
    }
    if (wait[1].revents & POLLIN) {
      memset(asked, 0, in);
      if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, asked)) {
        if (errno != ENOENT && errno != EINTR)
          fail("listening");
      } else {
        answer(asked, said);
      }
    } else if (wait[1].revents & (POLLHUP | POLLERR)) {
      wait[1].fd = -1; /* nobody is left who could ask; the program's end follows */
    }
  }
}

int main(int argc, char **argv) {
  if (argc < 7 || !read_seed(argv[1])) {
    fprintf(stderr, "hermeval pinned: attend SEED RELEASE VERSION MACHINE NODE PROGRAM ARGUMENT...\n");
    return FAILED;
  }
  const char *fields[6] = {"Linux", argv[5], argv[2], argv[3], argv[4], "(none)"};
  for (int i = 0; i < 6; i++)
    snprintf(machine.field[i], sizeof machine.field[i], "%s", fields[i]);
  int channel[2];
  sigset_t child, mask;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  if (sigprocmask(SIG_BLOCK, &child, &mask) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel))
    fail("starting");
  int ends = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
  if (ends < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    fail("starting");
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* the program has the same uid; before it is there, and an execve undoes it for the program */
  pid_t program = fork();
  if (program < 0)
    fail("starting");
  if (program == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* without the attendant nothing here is pinned */
    close(channel[0]); /* so that handing over fails where the attendant has died already */
    become(channel[1], &mask, argv + 6);
  }
  close(channel[1]);
  listener = receive_descriptor(channel[0]);
  if (listener < 0) {
    waitpid(program, NULL, 0); /* it has said why */
    return FAILED;
  }
  close(channel[0]);
  int nothing = open("/dev/null", O_RDWR | O_CLOEXEC); /* the program's streams end with the program */
  if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(nothing, 1) < 0)
    fail("starting");
  attend(program, ends);
}
