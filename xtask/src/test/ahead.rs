//! Builds that later steps need, at a low priority beside what leaves the processors idle at times.
//! Built on cargo, which finds what is built already; used by `test`.

use crate::process::output;
use crate::workspace::BUILD_LIMIT;
use rustix::process::nice;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The priority of the thread, and of what it starts. Lower ones get almost no time on a machine whose processors are kept busy by others: beside
/// two busy programs on two processors a build of a minute at 19 had not ended after half an hour.
const LOW: i32 = 5;

/// Runs `work`, and `builds` one after another beside it. None is begun once `work` has ended; the last one is waited for. A build that
/// fails is made again, and shown, by the step that needs it.
pub fn build_beside(builds: Vec<Command>, work: impl FnOnce()) {
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            if nice(LOW).is_err() {
                return;
            }
            for mut build in builds {
                if has_ended.load(Ordering::Relaxed) {
                    break;
                }
                let _ = output(&mut build, BUILD_LIMIT);
            }
        });
        work();
        has_ended.store(true, Ordering::Relaxed);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn builds_are_made_at_a_low_priority_while_there_is_work_and_not_after_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let sh = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).current_dir(directory.path());
            command
        };
        let builds = vec![
            sh("nice >nice; exit 3"),
            sh("touch second; until [ -e ended ]; do sleep 0.01; done; touch waited"),
            sh("touch third"),
        ];
        build_beside(builds, || {
            let deadline = Instant::now() + Duration::from_secs(60);
            while !file("second").exists() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
            // The second one goes on until the work has ended, and a while longer.
            let ended = file("ended");
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(200));
                std::fs::write(ended, "").unwrap();
            });
        });
        let number = |text: &str| text.trim().parse::<i32>().unwrap();
        let own = number(&String::from_utf8(sh("nice").output().unwrap().stdout).unwrap());
        assert_eq!(number(&std::fs::read_to_string(file("nice")).unwrap()), (own + 5).min(19));
        assert!(file("waited").exists() && !file("third").exists());
    }
}
