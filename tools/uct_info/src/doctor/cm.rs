//! `--doctor`: what stands in the way of connections of a connection manager to an address. It is the connection manager's own account.

use std::fmt;
use std::net::SocketAddr;

use serde::Serialize;
use uct_core::system::net::{ParsedAddress, Purpose};
use uct_core::{Context, split_remedy};
use uct_tools_common::Failure;

/// The section.
#[derive(Serialize)]
pub(crate) struct Diagnosis {
    cm: String,
    address: SocketAddr,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct Finding {
    /// Whether it stands in the way.
    is_obstacle: bool,
    words: String,
    /// What to do, if there is something.
    remedy: Option<String>,
}

impl Diagnosis {
    /// `address` has a port or none.
    pub(crate) fn of(context: &Context, cm: &str, address: &str) -> Result<Diagnosis, Failure> {
        let refused = |words: String| format!("--doctor {cm} {address}: {words}");
        let address = match ParsedAddress::parse(address, Purpose::Locate) {
            Ok(ParsedAddress::Ip(ip)) => ip,
            Ok(_) => return Err(refused("expected an IP address".to_owned()).into()),
            Err(bad) => return Err(refused(bad.to_string()).into()),
        };
        let found = context.diagnose_cm(cm, address)?;
        let findings = found
            .into_iter()
            .map(|finding| {
                let (words, remedy) = split_remedy(&finding.words);
                let (words, remedy) = (words.to_owned(), remedy.map(str::to_owned));
                Finding { is_obstacle: finding.obstacle.is_some(), words, remedy }
            })
            .collect();
        Ok(Diagnosis { cm: cm.to_owned(), address, findings })
    }

    /// Why a program would get an error here, if it would.
    pub(crate) fn failure(&self) -> Option<String> {
        let obstacles = self.findings.iter().filter(|finding| finding.is_obstacle).count();
        (obstacles > 0)
            .then(|| format!("{} cannot connect to {}: see the reason above", self.cm, self.address))
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# {} and {}:", self.cm, self.address)?;
        for finding in &self.findings {
            writeln!(f, "{}  {}", if finding.is_obstacle { "OBSTACLE" } else { "ok      " }, finding.words)?;
            if let Some(remedy) = &finding.remedy {
                writeln!(f, "          → {remedy}")?;
            }
        }
        Ok(())
    }
}
