//! The processor time of children, of all together and of one that runs beside others.
//! Built on /proc and `process`.

use crate::failure::{Context, Outcome};
use crate::process::{POLL, kill_tree};
use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::fs;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Ticks of children that were waited for by [`wait_apart`].
static APART: AtomicU64 = AtomicU64::new(0);

/// What the children of this process that were waited for, and theirs, took of the processors; without those of [`wait_apart`]. Zero where
/// /proc does not say.
pub fn processor_time() -> Duration {
    let [_, children] = ticks("self");
    duration(children.saturating_sub(APART.load(Ordering::Relaxed)))
}

/// Waits for a child that runs beside others, up to an instant; then it and its descendants are killed, and it has no status. Returned is also what it,
/// and what it has waited for, took of the processors.
pub fn wait_apart(child: &mut Child, deadline: Instant) -> Outcome<(Option<ExitStatus>, Duration)> {
    let no_wait = || "cannot wait for a child process".to_owned();
    // The kernel adds its time to that of this process's children when it is gone, and says it until then.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let has_ended = loop {
        if waitid(WaitId::Pid(Pid::from_child(child)), options).context(no_wait)?.is_some() {
            break true;
        }
        if Instant::now() >= deadline {
            break false;
        }
        thread::sleep(POLL);
    };
    let spent = ticks(&child.id().to_string()).iter().sum();
    APART.fetch_add(spent, Ordering::Relaxed);
    let status = if has_ended {
        Some(child.wait().context(no_wait)?)
    } else {
        kill_tree(child);
        None
    };
    Ok((status, duration(spent)))
}

fn duration(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second().max(1) as f64)
}

/// User and system time of a process, and those of children that it waited for. The name, in parentheses, may hold anything; the state is
/// field 3, these are fields 14 to 17.
fn ticks(process: &str) -> [u64; 2] {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    read_ticks(&stat)
}

fn read_ticks(stat: &str) -> [u64; 2] {
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let mut ticks = fields.skip(11).map_while(|field| field.parse::<u64>().ok());
    let mut two = || ticks.by_ref().take(2).sum();
    [two(), two()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Its child takes the time.
    fn busy() -> Command {
        let mut busy = Command::new("sh");
        busy.args(["-c", "(i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done); true"]);
        busy
    }

    #[test]
    fn the_time_is_read_from_fields_14_to_17() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 130 140 15";
        assert_eq!(read_ticks(stat), [23, 270]);
        assert_eq!(read_ticks(""), [0, 0]);
    }

    #[test]
    fn a_child_apart_has_its_own_time_and_is_not_among_the_others() {
        if !crate::alone::is_alone() {
            return;
        }
        let begin = processor_time();
        let minute = Instant::now() + Duration::from_secs(60);
        let (status, spent) = wait_apart(&mut busy().spawn().unwrap(), minute).unwrap();
        assert!(status.unwrap().success());
        // Each of the four figures is rounded down by itself.
        let others = processor_time().saturating_sub(begin);
        assert!(others < spent / 2, "{others:?} beside {spent:?}");
        busy().status().unwrap();
        let others = processor_time().saturating_sub(begin);
        assert!(others > spent / 4, "{others:?} after {spent:?}");
    }

    #[test]
    fn a_child_apart_that_does_not_end_is_killed() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let (status, _) = wait_apart(&mut child, Instant::now()).unwrap();
        assert!(status.is_none());
        assert!(child.try_wait().unwrap().is_some());
    }
}
