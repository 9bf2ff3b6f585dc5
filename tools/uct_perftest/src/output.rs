//! What a run prints: UCX's table, or comma separated values, or nothing until the JSON at the end; and how a long
//! case is going.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use uct_tools_common::{Failure, note, output};

use crate::kind::Test;
use crate::options::Options;
use crate::plan::{Case, Plan};
use crate::result::{Chosen, LeftOut, Outcome, description, messages_in_turn};
use crate::run::Interim;
use crate::sizes::shown;

const RULE: &str = "+--------------+--------------+------------------------------+---------------------+-----------------------+";

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Table,
    Csv,
    /// The JSON comes at the end.
    Nothing,
}

/// Prints a run.
pub(crate) struct Output {
    style: Style,
    /// Whether to print the progress of a long case.
    interim: bool,
}

impl Output {
    pub(crate) fn of(options: &Options) -> Output {
        let style = match (options.json, options.csv) {
            (true, _) => Style::Nothing,
            (_, true) => Style::Csv,
            _ => Style::Table,
        };
        Output { style, interim: !options.final_only && !options.is_quiet() }
    }

    /// A human-readable line.
    pub(crate) fn say(&self, line: &str) -> Result<(), Failure> {
        if self.style == Style::Table { output(&format!("{line}\n")) } else { Ok(()) }
    }

    /// What is measured and what is not, and the head of the table.
    pub(crate) fn begin(
        &mut self,
        options: &Options,
        plan: &Plan,
        chosen: &Chosen,
        left_out: &[LeftOut],
    ) -> Result<(), Failure> {
        let left_out =
            left_out.iter().map(|LeftOut { size, reason }| format!("{} left out: {reason}", shown(*size)));
        match self.style {
            Style::Nothing => Ok(()),
            Style::Csv => {
                // The reader of the values expects nothing else.
                left_out.for_each(|line| note(&format!("uct_perftest: {line}\n")));
                output(
                    "size,layout,iterations,p50_us,p90_us,p99_us,p999_us,max_us,average_us,bandwidth_MB_s,rate_msg_s,\
                     cpu_client_ns,cpu_server_ns\n",
                )
            }
            Style::Table => {
                let test = plan.test;
                let explanation = if options.explain { &*chosen.explanation } else { "" };
                let time = test.time_name();
                let left_out: String = left_out.map(|line| format!("# {line}\n")).collect();
                output(&format!(
                    "{explanation}# {}: {} {time} over {}, waiting by {}\n# {}\n{left_out}{RULE}\n\
                     |              |              |{:^30}|   bandwidth (MB/s)  |  message rate (msg/s) |\n{RULE}\n\
                     |    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  \
                     overall  |\n{RULE}\n",
                    test.name(),
                    description(test),
                    chosen.resource,
                    plan.wait.name(),
                    chosen.reason,
                    format!("{time} (usec)"),
                ))
            }
        }
    }

    /// Tells how a case is going.
    pub(crate) fn case(&self, plan: &Plan, case: &Case) -> Progress {
        let bar = (self.interim && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(case.iterations);
            let template = "{prefix} [{wide_bar}] {percent}% {msg} eta {eta}";
            bar.set_style(ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar()));
            bar.set_prefix(format!("{} {}", plan.test.name(), shown(case.size)));
            bar
        });
        Progress { bar, lines: self.interim, test: plan.test, size: case.size }
    }

    /// The figures of a case.
    pub(crate) fn outcome(&mut self, plan: &Plan, outcome: &Outcome) -> Result<(), Failure> {
        match self.style {
            Style::Nothing => Ok(()),
            Style::Csv => output(&csv(outcome)),
            Style::Table => output(&final_lines(plan, outcome)),
        }
    }
}

/// How a case is going: a bar on a terminal, else a line a second.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    lines: bool,
    test: Test,
    size: usize,
}

impl Progress {
    pub(crate) fn tell(&mut self, interim: &Interim<'_>) {
        let messages = messages_in_turn(self.test);
        let (median, recent) = (interim.times.quantile(0.5) / messages, interim.recent / messages);
        let overall = interim.times.mean() / messages;
        if let Some(bar) = &self.bar {
            bar.set_position(interim.iterations);
            bar.set_message(format!("{:.3} us", recent / 1e3));
        } else if self.lines {
            let line = row("", interim.iterations, median, (recent, overall), self.size);
            // A closed output is detected at the end.
            let _ = output(&line);
        }
    }

    pub(crate) fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

fn row(stage: &str, iterations: u64, median: f64, (average, overall): (f64, f64), size: usize) -> String {
    let rate = |nanoseconds: f64| 1e9 / nanoseconds.max(1e-3);
    let bandwidth = |nanoseconds: f64| rate(nanoseconds) * size as f64 / 1e6;
    format!(
        "{stage:<15} {iterations:>14} {:>10.3} {:>9.3} {:>9.3} {:>10.2} {:>10.2} {:>11.0} {:>11.0}\n",
        median / 1e3,
        average / 1e3,
        overall / 1e3,
        bandwidth(average),
        bandwidth(overall),
        rate(average),
        rate(overall),
    )
}

fn final_lines(plan: &Plan, outcome: &Outcome) -> String {
    let Outcome { size, layout, iterations, batch, latency, cpu, .. } = outcome;
    let stage = match plan.cases.len() {
        1 => "Final:".to_owned(),
        _ => format!("{} {}:", shown(*size), layout.name()),
    };
    let average = latency.average_ns;
    let line = row(&stage, *iterations, latency.p50_ns, (average, average), *size);
    let us = |nanoseconds: f64| nanoseconds / 1e3;
    let server = cpu.server_ns.map_or_else(String::new, |server| format!(", server {:.3}", us(server)));
    format!(
        "{line}#   {} of {}; usec: 90% {:.3}, 99% {:.3}, 99.9% {:.3}, max {:.3}{}; processor per iteration: client {:.3}\
         {server}\n",
        layout.name(),
        shown(*size),
        us(latency.p90_ns),
        us(latency.p99_ns),
        us(latency.p999_ns),
        us(latency.max_ns),
        if *batch > 1 { format!(" (means of {batch})") } else { String::new() },
        us(cpu.client_ns),
    )
}

fn csv(outcome: &Outcome) -> String {
    let Outcome { size, layout, iterations, latency, bandwidth, rate, cpu, .. } = outcome;
    let us = |nanoseconds: f64| nanoseconds / 1e3;
    format!(
        "{size},{},{iterations},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4},{:.2},{:.0},{:.1},{}\n",
        layout.name(),
        us(latency.p50_ns),
        us(latency.p90_ns),
        us(latency.p99_ns),
        us(latency.p999_ns),
        us(latency.max_ns),
        us(latency.average_ns),
        bandwidth.overall / 1e6,
        rate.overall,
        cpu.client_ns,
        cpu.server_ns.map_or_else(String::new, |server| format!("{server:.1}")),
    )
}
