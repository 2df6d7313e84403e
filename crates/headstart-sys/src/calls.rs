//! Names of the system calls of this architecture, by their numbers (syscalls(2)). Makes none.

/// The table, from constants of libc.
macro_rules! table {
    ($($name:ident)*) => { &[$((libc::$name, stringify!($name))),*] };
}

/// Those that all architectures have.
const COMMON: &[(libc::c_long, &str)] = table!(
    SYS_accept SYS_accept4 SYS_bind SYS_brk SYS_chdir SYS_chroot SYS_clock_nanosleep SYS_clone
    SYS_clone3 SYS_close SYS_close_range SYS_connect SYS_copy_file_range SYS_dup SYS_dup3
    SYS_epoll_create1 SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2 SYS_execve SYS_execveat SYS_exit
    SYS_exit_group SYS_faccessat SYS_faccessat2 SYS_fadvise64 SYS_fallocate SYS_fchdir SYS_fchmod
    SYS_fchmodat SYS_fchown SYS_fchownat SYS_fcntl SYS_fdatasync SYS_fgetxattr SYS_flock SYS_fstat
    SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex SYS_futex_waitv SYS_getcwd SYS_getdents64
    SYS_getrandom SYS_getxattr SYS_init_module SYS_finit_module SYS_inotify_add_watch
    SYS_inotify_init1 SYS_io_getevents SYS_io_submit SYS_io_uring_enter SYS_io_uring_setup SYS_ioctl
    SYS_kill SYS_lgetxattr SYS_linkat SYS_listen SYS_listxattr SYS_llistxattr SYS_madvise
    SYS_membarrier SYS_memfd_create SYS_mkdirat SYS_mlock SYS_mlock2 SYS_mlockall SYS_mmap SYS_mount
    SYS_move_mount SYS_mprotect SYS_mremap SYS_msync SYS_munlock SYS_munmap SYS_name_to_handle_at
    SYS_nanosleep SYS_newfstatat SYS_open_by_handle_at SYS_openat SYS_openat2 SYS_pidfd_open
    SYS_pipe2 SYS_pkey_mprotect SYS_ppoll SYS_prctl SYS_pread64 SYS_preadv SYS_preadv2
    SYS_process_madvise SYS_pselect6 SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_read SYS_readahead
    SYS_readlinkat SYS_readv SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_renameat2
    SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_sched_yield SYS_sendfile SYS_sendmmsg SYS_sendmsg
    SYS_sendto SYS_setxattr SYS_signalfd4 SYS_socket SYS_socketpair SYS_splice SYS_statfs SYS_statx
    SYS_symlinkat SYS_sync SYS_sync_file_range SYS_syncfs SYS_tee SYS_timerfd_create SYS_truncate
    SYS_umount2 SYS_unlinkat SYS_userfaultfd SYS_utimensat SYS_vmsplice SYS_wait4 SYS_waitid
    SYS_write SYS_writev
);

/// Those that newer architectures have no more.
#[cfg(target_arch = "x86_64")]
const OLDER: &[(libc::c_long, &str)] = table!(
    SYS_access SYS_chmod SYS_chown SYS_creat SYS_dup2 SYS_epoll_create SYS_epoll_wait SYS_eventfd
    SYS_fork SYS_getdents SYS_inotify_init SYS_lchown SYS_link SYS_lstat SYS_mkdir SYS_open
    SYS_pause SYS_pipe SYS_poll SYS_readlink SYS_rename SYS_renameat SYS_rmdir SYS_select
    SYS_signalfd SYS_stat SYS_symlink SYS_unlink SYS_utime SYS_utimes SYS_vfork
);
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[(libc::c_long, &str)] = &[];

/// The name of a system call, as `openat`; `None` for one that is not in the table.
pub fn name(number: u32) -> Option<&'static str> {
    let mut calls = COMMON.iter().chain(OLDER);
    let (_, name) = calls.find(|(known, _)| u32::try_from(*known) == Ok(number))?;
    name.strip_prefix("SYS_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_call_has_the_name_of_its_manual_page() {
        assert_eq!(name(libc::SYS_openat as u32), Some("openat"));
        assert_eq!(name(libc::SYS_read as u32), Some("read"));
        assert_eq!(name(u32::MAX), None);
    }

    #[test]
    fn each_number_is_in_the_table_once() {
        let mut seen = HashSet::new();
        assert!(COMMON.iter().chain(OLDER).all(|(number, _)| seen.insert(*number)));
    }
}
