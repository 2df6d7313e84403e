/* What happens to an exec when its FAN_OPEN_EXEC_PERM listener is stopped, and killed? For doc/daemon.md.
 *
 *   gcc -o exec-perm bench/lib/exec-perm.c && sudo ./exec-perm FILE
 *
 * FILE is a program that ends at once; it is marked while this runs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/fanotify.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

/* Allows each exec at once. */
static void listen_for(const char *file, int ready)
{
	int group = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY);
	if (group < 0 || fanotify_mark(group, FAN_MARK_ADD, FAN_OPEN_EXEC_PERM, AT_FDCWD, file)) {
		perror(file);
		_exit(1);
	}
	write(ready, "", 1);
	struct fanotify_event_metadata event;
	while (read(group, &event, sizeof event) == sizeof event) {
		struct fanotify_response response = { event.fd, FAN_ALLOW };
		write(group, &response, sizeof response);
		close(event.fd);
	}
	_exit(1);
}

static pid_t start(const char *file)
{
	pid_t program = fork();
	if (program == 0) {
		execl(file, file, NULL);
		_exit(127);
	}
	return program;
}

/* Waits for the end of a process for so long; the time, or -1. */
static double ended(pid_t process, double longest)
{
	double began = ms();
	while (waitpid(process, NULL, WNOHANG) != process) {
		if (ms() - began > longest)
			return -1;
		poll(NULL, 0, 1);
	}
	return ms() - began;
}

int main(int argc, char **argv)
{
	int ready[2];
	setlinebuf(stdout);
	char byte;
	if (argc != 2 || pipe(ready))
		return 2;
	printf("without a listener:         the exec takes %.1f ms\n", ended(start(argv[1]), 2000));
	pid_t listener = fork();
	if (listener == 0)
		listen_for(argv[1], ready[1]);
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		return 1;
	printf("with one:                   the exec takes %.1f ms\n", ended(start(argv[1]), 2000));
	kill(listener, SIGSTOP);
	waitpid(listener, NULL, WUNTRACED);
	pid_t waits = start(argv[1]);
	printf("it is stopped (SIGSTOP):    ");
	if (ended(waits, 10000) < 0)
		printf("the exec hangs, for 10 s and longer\n");
	else
		printf("the exec goes on\n");
	kill(listener, SIGKILL);
	printf("it is killed:               the exec goes on after %.1f ms\n", ended(waits, 2000));
	waitpid(listener, NULL, 0);
	return 0;
}
