//! Datagrams: one packet each, no answer.
//!
//! For queue pairs. A receive buffer begins with 40 bytes of a global routing header, whose last 20 bytes are the IPv4
//! header where the addresses are of that kind (annex A17.9).

use std::net::IpAddr;

use super::super::completion::{Completion, Opcode, RouteKind, Status};
use super::super::device::Incoming;
use super::super::gid::to_gid;
use super::super::memory::Refused;
use super::super::psn::Psn;
use super::super::resources::Resources;
use super::super::wire::{BTH_LENGTH, Deth, Headers, Kind, Part};
use super::{Qp, QpState, SendData, SendKind, SendRequest};

/// Bytes ahead of the payload in a receive buffer.
const ROUTE_LENGTH: usize = 40;

impl Qp {
    /// Sends datagrams, at most so many. Whether there are more.
    pub fn send_datagrams(&mut self, resources: &mut Resources, budget: usize) -> bool {
        if self.state() != QpState::ReadyToSend {
            return false;
        }
        for _ in 0..budget {
            let Some((request, failed)) = self.next_datagram() else { return false };
            let sent = match failed {
                Some(status) => Err(status),
                None => self.send_datagram(&request, resources).map_err(Status::from),
            };
            match sent {
                Ok(()) => {
                    if request.is_signaled || self.config.signals_all {
                        self.report_send(resources, &request, Status::Success, request.data.length() as u32);
                    }
                }
                Err(status) => {
                    self.report_send(resources, &request, status, 0);
                    self.attributes.state = QpState::SendQueueError;
                    self.flush_sends(resources);
                    return false;
                }
            }
        }
        true
    }

    fn send_datagram(&mut self, request: &SendRequest, resources: &mut Resources) -> Result<(), Refused> {
        let SendKind::Datagram { path, qp, qkey } = request.kind else { return Ok(()) };
        let mut headers = Headers::new(Kind::Datagram, Part::Only, qp, self.next_datagram_psn());
        headers.extra = request.extra;
        headers.is_solicited = request.is_solicited;
        // A key with the highest bit set is privileged, and stands for that of the queue pair.
        let qkey = if qkey >> 31 == 1 { self.attributes.qkey } else { qkey };
        headers.deth = Some(Deth { qkey, source_qp: self.number });
        let bytes = headers.encode(request.data.length() as usize, |place| match &request.data {
            SendData::Inline(bytes) => {
                place.copy_from_slice(bytes);
                Ok(())
            }
            SendData::Pieces(pieces) => resources.memory.gather(self.config.pd, pieces, 0, place),
        })?;
        self.send(resources, path, bytes);
        Ok(())
    }

    fn next_datagram_psn(&mut self) -> Psn {
        let psn = self.attributes.send_psn;
        self.attributes.send_psn = psn.plus(1);
        psn
    }

    /// Takes a datagram, or drops it where nobody waits for it.
    pub fn receive_datagram(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        packet: &Incoming<'_>,
        resources: &mut Resources,
    ) {
        let Some(deth) = headers.deth else { return };
        if !self.receives_requests() || deth.qkey != self.attributes.qkey {
            return;
        }
        let Some(request) = self.take_receive(resources) else { return };
        if let Some(status) = resources.next_receive() {
            self.report_receive(resources, request.wr_id, status);
            return self.fail(resources);
        }
        let route = route(packet);
        let pd = self.receive_domain(resources);
        let written = resources
            .memory
            .scatter(pd, &request.pieces, 0, &route)
            .and_then(|()| resources.memory.scatter(pd, &request.pieces, ROUTE_LENGTH as u64, payload));
        // What is wrong with a datagram is no fault of the queue pair, or anybody could end it (9.9.3, classes D and E): one
        // that is too long is dropped, and its buffer waits for the next unless it is of a shared queue.
        let status = match written {
            Ok(()) => Status::Success,
            Err(Refused::Length) if self.config.srq.is_none() => return self.receives.put_back(request),
            Err(refused) => refused.into(),
        };
        let mut completion = Completion::new(self.number, request.wr_id, status, Opcode::Receive);
        completion.length = (ROUTE_LENGTH + payload.len()) as u32;
        completion.extra = headers.extra;
        completion.source_qp = deth.source_qp;
        let is_v4 = packet.source.is_ipv4() && packet.destination.is_ipv4();
        completion.route = Some(if is_v4 { RouteKind::V4 } else { RouteKind::V6 });
        resources.complete(self.config.receive_cq, completion, headers.is_solicited);
        if status == Status::LocalProtection {
            self.fail(resources);
        }
    }
}

/// The routing header of a packet: that of IPv6, or 20 bytes of zero and that of IPv4.
fn route(packet: &Incoming<'_>) -> [u8; ROUTE_LENGTH] {
    let mut route = [0; ROUTE_LENGTH];
    // UDP header, the packet, ICRC.
    let length = (8 + packet.bytes.len().max(BTH_LENGTH) + 4) as u16;
    match (packet.source, packet.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = &mut route[20..];
            ip[0] = 0x45;
            ip[2..4].copy_from_slice(&(20 + length).to_be_bytes());
            // Not to be fragmented.
            ip[6] = 0x40;
            ip[8] = 64;
            ip[9] = 17;
            ip[12..16].copy_from_slice(&source.octets());
            ip[16..20].copy_from_slice(&destination.octets());
            let sum = checksum(&route[20..]);
            route[30..32].copy_from_slice(&sum.to_be_bytes());
        }
        (source, destination) => {
            route[0] = 0x60;
            route[4..6].copy_from_slice(&length.to_be_bytes());
            route[6] = 17;
            route[7] = 64;
            route[8..24].copy_from_slice(&to_gid(source));
            route[24..40].copy_from_slice(&to_gid(destination));
        }
    }
    route
}

/// The checksum of an IPv4 header whose own field is 0.
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}
