//! Connecting a queue pair to one of the peer's.

use uct_ib::verbs::{Access, RcConnect};
use uct_ib::{DeviceAddress, PortAddress};
use uct_plugin::{Error, Failure, Result};

use super::Conn;
use crate::proto::addr::EpAddress;

/// How often the kernel is asked to connect while it does not learn the peer's hardware address. Each time it waits for a
/// second, in which it sends about one request; a single lost packet must not be fatal.
const RESOLVE_ATTEMPTS: u32 = 3;

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

    /// Connects it to the peer's endpoint of this address, which is on this device, from `port`.
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
        self.connect_qp(&connect, device)?;
        self.queue.connect(u32::from(address.window));
        ucs::log::debug!(
            qp = self.qp.number(),
            peer = address.qp,
            gid = %device.gid,
            window = address.window,
            "rc_verbs: connected"
        );
        Ok(())
    }

    /// Connects the queue pair. Blocks for [`RESOLVE_ATTEMPTS`] seconds if the peer's address does not resolve.
    fn connect_qp(&self, connect: &RcConnect, device: &DeviceAddress) -> Result<(), Failure> {
        let mut attempt = 1;
        loop {
            match self.qp.connect_rc(connect) {
                Err(error) if error.is_timeout() && attempt < RESOLVE_ATTEMPTS => {
                    ucs::log::debug!(qp = self.qp.number(), gid = %device.gid, attempt, %error, "rc_verbs: asked again");
                    attempt += 1;
                }
                Err(error) if error.is_timeout() => {
                    return Err(Failure::new(
                        Error::TIMED_OUT,
                        format!(
                            "the peer's address {} was not resolved: no reply to ARP or neighbour discovery, tried {attempt} times \
                             for a second each; check that the peer is up and in this network ({error})",
                            device.gid
                        ),
                    ));
                }
                other => return other.map_err(Failure::from),
            }
        }
    }
}
