// Threads that hit the same breakpoints, fork, vfork, signals, traps of its own, a daemon: with
// a first argument it ends otherwise than with status 7.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define F(n) __attribute__((noinline)) int f##n(int x) { return x * n + 1; }
F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15)
static int (*all[])(int) = {f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15};
static pthread_barrier_t barrier;
static void *race(void *sum) {
    for (int i = 0; i < 16; i++) {
        pthread_barrier_wait(&barrier);
        *(long *)sum += all[i](i);
    }
    return 0;
}
static volatile int traps, signals;
static void on_trap(int s) { traps++; }
static void on_usr1(int s) { signals++; }
__attribute__((noinline)) int in_child(int x) { return x + 1; }
__attribute__((noinline)) int in_vfork(int x) { return x + 2; }
__attribute__((noinline)) int later(int x) { return x + 3; }
int main(int argc, char **argv) {
    pthread_barrier_init(&barrier, 0, 8);
    pthread_t t[8];
    long sums[8] = {0};
    for (int i = 0; i < 8; i++) pthread_create(t + i, 0, race, sums + i);
    for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
    for (int i = 1; i < 8; i++) if (sums[i] != sums[0]) { puts("sums differ"); return 1; }
    pid_t child = fork();
    if (!child) _exit(in_child(41));
    int status;
    waitpid(child, &status, 0);
    if (WEXITSTATUS(status) != 42) { puts("fork"); return 1; }
    volatile int got = 0;
    child = vfork();
    if (!child) { got = in_vfork(1); _exit(5); }
    waitpid(child, &status, 0);
    if (WEXITSTATUS(status) != 5 || got != 3 || in_vfork(1) != 3) { puts("vfork"); return 1; }
    signal(SIGUSR1, on_usr1);
    kill(getpid(), SIGUSR1);
    if (signals != 1) { puts("signal"); return 1; }
    char line[64] = "";
    if (fgets(line, sizeof line, stdin)) fputs(line, stdout);
    if (argc > 1 && !strcmp(argv[1], "kill")) kill(getpid(), SIGTERM);
    if (argc > 1 && !strcmp(argv[1], "daemon")) {
        pid_t parent = getpid();
        if (fork()) _exit(9);
        setsid();
        // Until the first process, and whoever looks at it, has ended.
        while (getppid() == parent) usleep(1000);
        usleep(50000);
        FILE *f = fopen(argv[2], "w");
        fprintf(f, "%d", later(1));
        fclose(f);
        _exit(0);
    }
    if (argc > 1 && !strcmp(argv[1], "traps")) {
        signal(SIGTRAP, on_trap);
        raise(SIGTRAP);
        __asm__ volatile("int3");
        if (traps != 2 || later(1) != 4) { printf("%d traps\n", traps); return 1; }
    }
    return 7;
}
