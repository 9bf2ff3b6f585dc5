//! Filters of system calls, as containers and systemd's sandboxes have them.

/// A system call that is refused from now on.
#[derive(Clone, Copy)]
pub struct Refused {
    pub number: libc::c_long,
    /// Its first argument, if not all are refused.
    pub first: Option<i32>,
    pub errno: i32,
}

/// Has the kernel refuse a system call of this thread, and of those that it starts. There is no way back.
pub fn refuse(refused: Refused) {
    let code = |class: u32, rest: u32| (class | rest) as u16;
    let load = code(libc::BPF_LD, libc::BPF_W | libc::BPF_ABS);
    let is_equal = code(libc::BPF_JMP, libc::BPF_JEQ | libc::BPF_K);
    let answer = code(libc::BPF_RET, libc::BPF_K);
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // What a filter sees begins with the number of the call; the first argument is at 16, its low half first.
    let mut filter = vec![step(load, 0, 0, 0)];
    match refused.first {
        None => filter.push(step(is_equal, 1, 0, refused.number as u32)),
        Some(first) => filter.extend([
            step(is_equal, 0, 2, refused.number as u32),
            step(load, 0, 0, 16),
            step(is_equal, 1, 0, first as u32),
        ]),
    }
    filter.push(step(answer, 0, 0, libc::SECCOMP_RET_ALLOW));
    filter.push(step(answer, 0, 0, libc::SECCOMP_RET_ERRNO | refused.errno as u32));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program and its filter live through the call.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) }, 0);
}
