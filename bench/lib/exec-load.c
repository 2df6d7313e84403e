/* A load of execs for bench/exec-sources.py. Static and without libc, so that a program lasts
 * some microseconds.
 *
 *   exec-load chain COUNT GAP   one process calls exec COUNT times, GAP nanoseconds apart; writes
 *                               how long each took, from the call to the first instruction
 *   exec-load storm COUNT GAP   starts COUNT programs one after the other; writes when each
 *                               called exec, and its PID
 *   exec-load end               what a storm starts
 *
 * What is written to descriptor 1 is 64-bit numbers, in nanoseconds of CLOCK_MONOTONIC.
 * x86-64 only. */
typedef unsigned long u64;

static long call(long number, long a, long b, long c, long d)
{
	register long r10 asm("r10") = d;
	long result;
	asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
		     : "rcx", "r11", "memory");
	return result;
}

enum { WRITE = 1, NANOSLEEP = 35, FORK = 57, EXECVE = 59, EXIT = 60, WAIT4 = 61,
       CLOCK_GETTIME = 228, MONOTONIC = 1 };

static u64 now(void)
{
	struct { u64 s, ns; } t;
	call(CLOCK_GETTIME, MONOTONIC, (long)&t, 0, 0);
	return t.s * 1000000000 + t.ns;
}

static u64 number(const char *text)
{
	u64 value = 0;
	while (*text)
		value = 10 * value + (*text++ - '0');
	return value;
}

/* 20 digits, with zeros ahead. */
static void digits(u64 value, char *text)
{
	for (int i = 19; i >= 0; i--, value /= 10)
		text[i] = '0' + value % 10;
	text[20] = 0;
}

static void sleep_for(u64 ns)
{
	struct { u64 s, ns; } time = { ns / 1000000000, ns % 1000000000 };
	if (ns)
		call(NANOSLEEP, (long)&time, 0, 0, 0);
}

static void chain(char **argv, char **env, u64 began)
{
	static char left[21], since[21];
	u64 count = number(argv[2]);
	if (argv[4]) {
		u64 took = began - number(argv[4]);
		call(WRITE, 1, (long)&took, sizeof took, 0);
	}
	if (!count)
		return;
	sleep_for(number(argv[3]));
	digits(count - 1, left);
	char *next[] = { argv[0], argv[1], left, argv[3], since, 0 };
	digits(now(), since);
	call(EXECVE, (long)argv[0], (long)next, (long)env, 0);
	call(EXIT, 1, 0, 0, 0);
}

static void storm(char **argv, char **env)
{
	char *next[] = { argv[0], "end", 0 };
	for (u64 count = number(argv[2]); count; count--) {
		sleep_for(number(argv[3]));
		u64 pid = call(FORK, 0, 0, 0, 0);
		if (pid == 0) {
			u64 called = now();
			call(WRITE, 1, (long)&called, sizeof called, 0);
			call(EXECVE, (long)argv[0], (long)next, (long)env, 0);
			call(EXIT, 1, 0, 0, 0);
		}
		call(WAIT4, pid, 0, 0, 0);
		call(WRITE, 1, (long)&pid, sizeof pid, 0);
	}
}

__attribute__((used)) static void main_of(u64 *stack)
{
	u64 began = now();
	char **argv = (char **)(stack + 1), **env = argv + stack[0] + 1;
	if (stack[0] > 3 && argv[1][0] == 'c')
		chain(argv, env, began);
	if (stack[0] > 3 && argv[1][0] == 's')
		storm(argv, env);
	call(EXIT, 0, 0, 0, 0);
}

asm(".globl _start\n_start: mov %rsp, %rdi\nand $-16, %rsp\ncall main_of\n");
