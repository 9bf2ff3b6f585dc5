//! Lanes of both sides: what they are called, what the peer needs to know of them, and the one that the socket of the handshake becomes.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use ucs::Error as Status;
use uct_host::{EpFailure, Iface, IfaceAddress, Refused, SocketSide};

use super::super::conn::Conn;
use super::super::handshake_link::LaneSource;
use super::super::lane::HalfLane;
use super::super::net::NetHandle;
#[cfg(feature = "tls")]
use super::super::peer_loss::PeerLoss;
use super::super::socket::FrameSocket;
use super::steps::Steps;
use crate::error::{Error, Result, Stage};
use crate::proto::handshake::End;

/// What a lane of an interface is called in explanations.
pub(super) fn name(net: &NetHandle, iface: &Iface) -> String {
    let inside = if net.options.wraps(iface) { " inside TLS" } else { "" };
    format!("{}{inside}", iface.resource())
}

/// This side's end of a lane.
pub(super) fn end(net: &NetHandle, conn: &Conn, endpoint: Vec<u8>) -> End {
    End { token: conn.token(), window: net.options.window, endpoint }
}

/// What an endpoint calls when it fails.
pub(super) fn on_failure(conn: &Rc<Conn>) -> impl FnOnce(EpFailure) + use<> {
    let conn = Rc::downgrade(conn);
    move |failure| {
        if let Some(conn) = conn.upgrade() {
            conn.lane_failed(&failure);
        }
    }
}

/// Hands the socket of the handshake to an interface, or one to what encrypts, and opens the lane over it.
pub(super) fn take_socket(
    steps: &Steps<'_>,
    conn: &Rc<Conn>,
    iface: &Iface,
    theirs: &IfaceAddress,
    side: SocketSide,
    peer: &End,
) -> Result {
    let Steps { net, socket, .. } = steps;
    let failed = |status, reason: String| Error::new(Stage::Open, socket.peer(), status, reason);
    let refused = |refused: Refused| failed(refused.status, refused.to_string());
    let handed = if net.options.wraps(iface) {
        wrap(net, socket, conn, iface).map(LaneSource::Socket)
    } else {
        socket.hand_over(conn, peer.token)
    };
    let handed =
        handed.map_err(|error| failed(Status::from(error), "the socket cannot be handed over".to_owned()))?;
    let lane = match handed {
        LaneSource::Lane(lane) => lane,
        LaneSource::Socket(own) => {
            let half = HalfLane::over(iface, theirs, (own, side), on_failure(conn)).map_err(refused)?;
            half.connect(iface, theirs, &peer.endpoint, peer.token).map_err(refused)?
        }
    };
    conn.open(lane, peer.window);
    Ok(())
}

/// Has the session of the handshake encrypt what goes through a socket, which is returned.
#[cfg(feature = "tls")]
fn wrap(net: &NetHandle, socket: &FrameSocket, conn: &Rc<Conn>, iface: &Iface) -> std::io::Result<OwnedFd> {
    let tls = net.options.tls.as_ref().ok_or(std::io::ErrorKind::Unsupported)?;
    let peer_loss = PeerLoss::of(net.worker.context().config(), &iface.resource().transport);
    let secured = socket.hand_over_secured().ok_or(std::io::ErrorKind::NotConnected)??;
    net.pumps.add(&net.reactor, secured, (&peer_loss, tls.close_timeout), conn)
}

#[cfg(not(feature = "tls"))]
fn wrap(_: &NetHandle, _: &FrameSocket, _: &Rc<Conn>, _: &Iface) -> std::io::Result<OwnedFd> {
    Err(std::io::ErrorKind::Unsupported.into())
}
