//! Connecting a queue pair to one of the peer's.

use std::sync::Arc;

use uct_ib::connector::{Attempt, Outcome};
use uct_ib::verbs::{Access, QpControl, RcConnect};
use uct_ib::{DeviceAddress, Gid, GidKind, IbError, PortAddress};
use uct_plugin::{Error, Failure, Result};

use super::Conn;
use crate::proto::addr::EpAddress;

/// Connecting one queue pair.
pub(crate) struct ConnectAttempt {
    qp: Arc<QpControl>,
    connect: RcConnect,
    peer: Gid,
}

impl Attempt for ConnectAttempt {
    fn peer(&self) -> Gid {
        self.peer
    }

    fn run(&self) -> Result<(), IbError> {
        self.qp.connect_rc(&self.connect)
    }

    fn discard(&self) {
        if let Err(error) = self.qp.fail() {
            ucs::log::debug!(%error, "rc_verbs: a queue pair that nothing needs stays as it is");
        }
    }
}

impl Conn {
    /// What the peer has to know.
    pub(crate) fn address(&self) -> EpAddress {
        let limits = &self.shared.limits;
        EpAddress {
            reads_in: limits.max_reads_in,
            window: self.window.size(),
            qp: self.qp.number(),
            psn: self.own_psn(),
            seg_size: limits.seg_size as u32,
        }
    }

    fn own_psn(&self) -> u32 {
        // Differs between the connections of a queue pair number, so that late packets of an earlier one are not taken.
        (self.qp.number().wrapping_mul(0x9e37_79b9) ^ self.shared.salt) & 0xff_ffff
    }

    /// Connects it to the peer's endpoint of this address, which is on this device, from `port`. It may be connecting still when this
    /// returns: see [`Conn::end_connecting`].
    pub(crate) fn connect(
        &self,
        port: &PortAddress,
        device: &DeviceAddress,
        address: &EpAddress,
    ) -> Result<(), Failure> {
        let limits = &self.shared.limits;
        if (address.seg_size as usize) < limits.seg_size {
            return Err(Failure::new(
                Error::INVALID_PARAM,
                format!(
                    "the peer's receive buffers have {} bytes, messages here {}: set the same seg_size in section \
                     rc_verbs on both sides",
                    address.seg_size, limits.seg_size
                ),
            ));
        }
        let vector =
            port.vector_to(device).map_err(|reason| Failure::new(Error::UNREACHABLE, reason.to_string()))?;
        let access = Access::REMOTE_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_ATOMIC);
        let connect = RcConnect {
            vector,
            remote_qp: address.qp,
            path_mtu: port.path_mtu(device).code(),
            receive_psn: address.psn,
            send_psn: self.own_psn(),
            max_reads_out: limits.max_reads_out.min(address.reads_in),
            max_reads_in: limits.max_reads_in,
            min_rnr_timer: limits.rnr_timer,
            timeout: limits.timeout,
            retry_count: limits.retry_count,
            rnr_retry: limits.rnr_retry,
        };
        self.qp.init_rc(port.port.number, port.pkey_index(), access)?;
        self.queue.connect(u32::from(address.window));
        // InfiniBand has no address to resolve.
        let outcome = if device.kind == GidKind::InfiniBand {
            let result = self.qp.connect_rc(&connect);
            Some(Outcome { key: self.index, peer: device.gid, result, attempts: 1 })
        } else {
            let attempt = ConnectAttempt { qp: self.qp.control(), connect, peer: device.gid };
            self.shared.connector.start(self.index, attempt)
        };
        match outcome {
            Some(outcome) => self.connected(outcome).inspect_err(|_| self.queue.disconnect()),
            None => Ok(()),
        }
    }

    /// An attempt to connect has ended, after [`Conn::connect`] has returned. From progress.
    pub(crate) fn end_connecting(&self, outcome: Outcome) {
        // The last check: what has failed or was destroyed meanwhile is not opened again.
        if self.failure().is_some() || self.is_destroyed() || !self.queue.is_connecting() {
            return;
        }
        match self.connected(outcome) {
            Ok(()) => self.shared.pending.schedule(&self.group),
            Err(failure) => self.fail(failure.status, &failure.reason),
        }
    }

    /// Gives up connecting, if it is.
    pub(crate) fn stop_connecting(&self) {
        if self.queue.is_connecting() {
            self.shared.connector.cancel(self.index);
        }
    }

    /// Opens it if the queue pair is connected.
    fn connected(&self, outcome: Outcome) -> Result<(), Failure> {
        let Outcome { peer, result, attempts, .. } = outcome;
        match result {
            Ok(()) => {
                self.queue.open();
                ucs::log::debug!(qp = self.qp.number(), gid = %peer, attempts, "rc_verbs: connected");
                Ok(())
            }
            Err(error) if error.is_timeout() => Err(Failure::new(
                Error::TIMED_OUT,
                format!(
                    "the peer's address {peer} was not resolved: no reply to ARP or neighbour discovery, tried {attempts} times \
                     for a second each; check that the peer is up and in this network ({error})"
                ),
            )),
            Err(error) => Err(Failure::from(error)),
        }
    }
}
