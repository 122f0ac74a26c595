use anyhow::Result;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

/// The one that the default route leaves from; nothing is sent. An endpoint slice takes no address of
/// the loopback.
pub fn own_address() -> Result<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
    Ok(socket.local_addr()?.ip())
}
