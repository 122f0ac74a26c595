//! Doors that a crowd can come to at once.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};
use tokio::net::{TcpListener, TcpSocket};

/// Connections that nobody has taken yet; the kernel's own limit is lower. Beyond it clients are refused, or come again
/// after a second.
const QUEUE: u32 = 65_535;

/// On every address; a host without IPv6 has none of that kind.
pub fn everywhere(port: u16) -> io::Result<TcpListener> {
    match at((Ipv6Addr::UNSPECIFIED, port).into()) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            at((Ipv4Addr::UNSPECIFIED, port).into())
        }
        bound => bound,
    }
}

pub fn at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv6() {
        TcpSocket::new_v6()?
    } else {
        TcpSocket::new_v4()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(QUEUE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::try_join_all;
    use std::{fs, time::Duration};
    use tokio::{net::TcpStream, time::timeout};

    const CROWD: usize = 600;

    #[tokio::test]
    async fn a_crowd_is_let_in_before_anybody_is_looked_after() {
        let most = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let crowd = CROWD.min(most.trim().parse().unwrap());
        let listener = everywhere(0).unwrap();
        let port = listener.local_addr().unwrap().port();
        let all = try_join_all((0..crowd).map(|_| TcpStream::connect(("127.0.0.1", port))));
        let clients = timeout(Duration::from_secs(5), all).await;
        assert_eq!(clients.expect("at once").unwrap().len(), crowd);
    }
}
