//! What a guest's kernel says on its console when it dies or stalls, told apart from what else it says.
//! Used by `qemu`.

use std::fmt;

/// A kernel that can no longer be relied on, with the line that says so. None of our programs can be blamed for what follows.
#[derive(Debug, PartialEq, Eq)]
pub struct KernelFault {
    is_dead: bool,
    line: String,
}

/// How lines begin that a kernel writes when it has found itself broken. The trap of a program of ours has a line, too, and that one
/// begins with `traps:` or with the program's name.
const DEATHS: &[&str] = &[
    "Kernel panic - not syncing",
    "kernel BUG at",
    "BUG: ",
    "Oops: ",
    "Oops - ",
    "general protection fault",
    "PANIC: double fault",
];

/// Lines of a kernel that waited for too long. An overloaded machine can be the reason, so that a death counts for more.
const STALLS: &[&str] = &[
    "BUG: soft lockup",
    "BUG: workqueue lockup",
    "hard LOCKUP",
    "rcu_preempt detected stalls",
    "rcu_sched detected stalls",
    "detected expedited stalls",
    "self-detected stall on CPU",
    "blocked for more than",
];

impl KernelFault {
    /// The first line of a console's log by which the kernel died, else the first by which it stalled.
    pub fn find(log: &str) -> Option<Self> {
        let first = |is_dead, is_it: fn(&str) -> bool| {
            let line = log.lines().map(text).find(|line| is_it(line))?;
            Some(KernelFault { is_dead, line: line.to_owned() })
        };
        first(true, is_death).or_else(|| first(false, is_stall))
    }
}

impl fmt::Display for KernelFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_dead { "died" } else { "stalled" };
        write!(formatter, "the guest's kernel {what}: {}", self.line)
    }
}

fn is_death(line: &str) -> bool {
    !is_stall(line) && (DEATHS.iter().any(|begin| line.starts_with(begin)) || has_die_count(line))
}

fn is_stall(line: &str) -> bool {
    STALLS.iter().any(|part| line.contains(part))
}

/// `[#1]`: which trap of the kernel's own code it was since its boot.
fn has_die_count(line: &str) -> bool {
    let count = line.split_once("[#").and_then(|(_, rest)| rest.split_once(']'));
    count.is_some_and(|(count, _)| !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A line without its end, its time `[   12.345678]`, and the thread `[  T42]` that some kernels name.
fn text(line: &str) -> &str {
    let mut text = line.trim();
    while let Some((mark, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        if !mark.bytes().all(|byte| byte.is_ascii_digit() || b" .TC".contains(&byte)) {
            break;
        }
        text = rest.trim_start();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(log: &str) -> Option<String> {
        KernelFault::find(log).map(|fault| fault.to_string())
    }

    #[test]
    fn a_kernel_that_dies_of_a_packet_is_recognised_by_the_first_line_of_its_end() {
        let log = "[    3.104512] rdma_rxe: loaded\r\n\
            [   48.220317] BUG: unable to handle page fault for address: ffff9d2ac1400000\r\n\
            [   48.220604] #PF: supervisor read access in kernel mode\r\n\
            [   48.220871] #PF: error_code(0x0000) - not-present page\r\n\
            [   48.221150] Oops: 0000 [#1] PREEMPT SMP NOPTI\r\n\
            [   48.221409] CPU: 2 PID: 24 Comm: ksoftirqd/2 Not tainted 6.1.0-48-amd64 #1  Debian 6.1.0-48\r\n\
            [   48.222040] RIP: 0010:crc32_le_base+0x5d/0x1b0\r\n\
            [   48.230012] Kernel panic - not syncing: Fatal exception in interrupt\r\n";
        assert_eq!(
            found(log).unwrap(),
            "the guest's kernel died: BUG: unable to handle page fault for address: ffff9d2ac1400000"
        );
    }

    #[test]
    fn each_way_to_die_is_recognised() {
        for line in [
            "[    9.000001] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)",
            "[    9.000001] Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b",
            "[    9.000001][   T42] general protection fault, probably for non-canonical address 0xdead000000000100: 0000 [#1] PREEMPT SMP",
            "[    9.000001] general protection fault: 0000 [#1] SMP NOPTI",
            "[    9.000001] BUG: kernel NULL pointer dereference, address: 0000000000000018",
            "[    9.000001] invalid opcode: 0000 [#2] PREEMPT SMP NOPTI",
            "[    9.000001] kernel BUG at net/core/skbuff.c:112!",
            "[    9.000001] divide error: 0000 [#1] SMP",
            "[    9.000001] Oops: general protection fault, probably for non-canonical address: 0000 [#1] SMP",
        ] {
            let message = found(line).unwrap_or_else(|| panic!("{line}"));
            assert!(message.starts_with("the guest's kernel died: "), "{message}");
            assert!(!message.contains("9.000001"), "{message}");
        }
    }

    #[test]
    fn a_stall_is_no_death_and_a_death_behind_it_counts_for_more() {
        let stall = "[  101.733018] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [uct_perftest:311]\r\n";
        assert_eq!(
            found(stall).unwrap(),
            "the guest's kernel stalled: watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [uct_perftest:311]"
        );
        for line in [
            "[  60.1] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "[  60.1] rcu: INFO: rcu_preempt self-detected stall on CPU",
            "[  60.1] INFO: task kworker/0:1:12 blocked for more than 120 seconds.",
            "[  60.1] BUG: workqueue lockup - pool cpus=1 node=0 flags=0x0 nice=0 stuck for 43s!",
        ] {
            assert!(found(line).unwrap().contains("stalled"), "{line}");
        }
        let both = format!("{stall}[  130.0] Kernel panic - not syncing: softlockup: hung tasks\r\n");
        assert!(found(&both).unwrap().contains("died: Kernel panic"));
    }

    #[test]
    fn what_else_a_kernel_says_is_no_fault_of_it() {
        for line in [
            "",
            "[    0.000000] Linux version 6.1.0-48-amd64 (debian-kernel@lists.debian.org)",
            "[   12.000001] traps: uct_info[311] general protection fault ip:55d0 sp:7ffc error:0 in uct_info[55d0+1000]",
            "[   12.000001] uct_info[311]: segfault at 8 ip 000055d0 sp 00007ffc error 4 in uct_info[55d0+1000]",
            "[   12.000001] rdma_rxe: rxe_invalidate_mr: rkey (0x5a13) doesn't match mr->rkey (0x0)",
            "[   12.000001] refcount_t: underflow; use-after-free.",
            "[   12.000001] reboot: Power down",
            "[   12.000001] [#] is no number of a trap",
        ] {
            assert_eq!(found(line), None, "{line}");
        }
    }
}
