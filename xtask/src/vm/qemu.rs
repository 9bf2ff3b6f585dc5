//! One boot under QEMU's software emulation: what the command prints goes through, its status comes back.
//! Built on qemu-system-x86_64; used by `vm`. KVM is not used: it may be there and not work.

use super::console::KernelFault;
use crate::failure::{Context, Outcome};
use crate::process::{command, spawn};
use crate::processor::wait_apart;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// What a boot and a shutdown may take beside the command. Measured: 3 to 7 s; much more on a busy machine.
const BOOT_ALLOWANCE: Duration = Duration::from_secs(300);
const TIMED_OUT: u8 = 124;
const GUEST_DIED: u8 = 125;
const KERNEL_LOG_LINES: usize = 80;

/// A machine that is ready to boot.
pub struct Guest {
    /// The kernel's ELF image.
    pub kernel: PathBuf,
    /// The archive that it unpacks.
    pub initramfs: Vec<u8>,
    /// Virtual CPUs.
    pub cpus: u8,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// How long the command may take. The guest keeps to it itself, and shows what hangs.
    pub limit: Duration,
}

/// How a boot ended.
pub struct Ended {
    /// The command's status, 124 if it took too long, 125 if the guest died before the command ended.
    pub status: u8,
    /// What the guest's kernel said of itself, where it died or stalled.
    pub fault: Option<KernelFault>,
    /// Milestones of the guest.
    pub timings: Vec<String>,
    /// What the command itself wrote to the report, which is /dev/ttyS2 in the guest.
    pub notes: Vec<String>,
    /// What the machine took of the processors.
    pub processor: Duration,
}

impl Guest {
    /// Boots and waits for the end. What the command prints goes to `output` as it comes, and behind it how the machine ended, unless it
    /// ended as it should.
    pub fn boot(&self, output: &mut (impl Write + Send)) -> Outcome<Ended> {
        let directory = tempfile::tempdir().context(|| "cannot make a temporary directory".to_owned())?;
        let file = |name: &str| directory.path().join(name);
        fs::write(file("initramfs"), &self.initramfs).context(|| "cannot write the initramfs".to_owned())?;

        let limit = self.limit + BOOT_ALLOWANCE;
        // `timeout` ends the machine even if this program is killed.
        let mut qemu = command("timeout");
        qemu.args(["--foreground", "-k", "5", &limit.as_secs().to_string(), "qemu-system-x86_64"]);
        qemu.args(["-accel", "tcg,thread=multi", "-machine", "pc", "-cpu", PROCESSOR]);
        qemu.args(["-smp", &self.cpus.to_string(), "-m", &format!("{}M", self.memory_mib)]);
        qemu.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-monitor", "none"]);
        // ttyS0 is what the command prints, ttyS1 the kernel's log, ttyS2 what init reports.
        qemu.args(["-chardev", "stdio,id=output,signal=off", "-serial", "chardev:output"]);
        qemu.args(["-serial", &format!("file:{}", file("kernel").display())]);
        qemu.args(["-serial", &format!("file:{}", file("report").display())]);
        qemu.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(file("initramfs"));
        qemu.args(["-append", KERNEL_ARGUMENTS]);
        qemu.stdin(Stdio::null()).stdout(Stdio::piped());

        let mut child = spawn(&mut qemu)?;
        let pipe = child.stdout.take();
        let (ended, processor) = thread::scope(|scope| {
            // QEMU makes its standard output non-blocking; through a pipe of its own it cannot do that to ours.
            scope.spawn(|| pipe.map(|mut pipe| io::copy(&mut pipe, output)));
            wait_apart(&mut child, Instant::now() + limit + Duration::from_secs(15))
        })?;

        let report = fs::read_to_string(file("report")).unwrap_or_default();
        let lines = |mark: &str| -> Vec<String> {
            report.lines().filter_map(|line| line.strip_prefix(mark)).map(str::to_owned).collect()
        };
        let (timings, notes) = (lines("AT "), lines("NOTE "));
        let status = report.lines().rev().find_map(|line| line.strip_prefix("EXIT ")?.trim().parse().ok());
        let log = fs::read(file("kernel")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let fault = KernelFault::find(&log);
        let mut say = |text: &str| drop(writeln!(output, "[vm] {text}"));
        if let Some(fault) = &fault {
            say(&fault.to_string());
        }
        if let Some(status) = status {
            return Ok(Ended { status, fault, timings, notes, processor });
        }
        let timed_out =
            ended.and_then(|status| status.code()).is_none_or(|code| code == i32::from(TIMED_OUT));
        let what = if timed_out { "the guest hangs" } else { "the guest died" };
        let end = last_lines(&log, KERNEL_LOG_LINES);
        say(&format!("{what}: it reported no status. The end of its kernel's log:\n{end}"));
        Ok(Ended { status: if timed_out { TIMED_OUT } else { GUEST_DIED }, fault, timings, notes, processor })
    }
}

/// Without AVX, which programs and the kernel would use for copies and check sums, and which takes longer to emulate than what they use
/// without it: the suite takes a quarter less processor time than with `max`. The random numbers are for the boot.
const PROCESSOR: &str = "Nehalem,+rdrand,+rdseed";

/// The emulated processors count time together, which the kernel does not believe by itself; without their counter it reads
/// a timer chip, and every reader of the time waits for that: 1.7 us, and 80 ns with it.
const KERNEL_ARGUMENTS: &str = "console=ttyS1 panic=-1 quiet loglevel=4 mitigations=off \
     random.trust_cpu=on apparmor=0 audit=0 no_timer_check tsc=reliable";

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::last_lines;

    #[test]
    fn the_end_of_a_log_is_its_last_lines() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a\n", 2), "a");
        assert_eq!(last_lines("", 2), "");
    }
}
