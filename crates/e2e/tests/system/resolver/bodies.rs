//! Bodies that are large or slow, and clients that leave.

use super::sleeping_gated;
use anyhow::{Context, Result, ensure};
use elasti_e2e::{
    client::{get, http1, text},
    exchange, fetch,
    stage::Whole,
};
use futures::channel::mpsc;
use http_body_util::{Full, StreamBody};
use hyper::{
    Request,
    body::{Bytes, Frame},
    client::conn::http1 as connection,
};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use tokio::net::TcpStream;

const LARGE: usize = 32 << 20;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_large_body_goes_in_and_comes_out_whole() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        whole.stage.sleeping().await?;
        let address = whole.stage.reach("web", 80).await?;
        let body: String = ('a'..='z').cycle().take(LARGE).collect();
        let request = Request::post(format!("http://{address}/upload"));
        let answer = exchange(request.body(Full::from(body.clone()))?).await?;
        ensure!(answer.headers().contains_key("x-elasti-held"), "it waited");
        let echoed = answer.body().strip_prefix("POST /upload\n");
        ensure!(echoed.is_some_and(|echoed| echoed == body), "it differs");
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_body_may_come_piece_by_piece_before_and_after_the_target_is_awake() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        sleeping_gated(&whole.stage).await?;
        let stream = TcpStream::connect(whole.stage.reach("web", 80).await?).await?;
        let (mut client, connection) = connection::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let (pieces, body) = mpsc::unbounded::<Result<Frame<Bytes>, Infallible>>();
        let send = |piece: &'static str| {
            pieces.unbounded_send(Ok(Frame::data(Bytes::from_static(piece.as_bytes()))))
        };
        send("asleep, ")?;
        let request = Request::post("/slow").header("host", "web");
        let answer = client.send_request(request.body(StreamBody::new(body))?);
        let pieces_follow = async {
            whole.until_held("web", 1).await?;
            send("waking, ")?;
            whole.stage.open("web").await?;
            whole.until_held("web", 0).await?;
            send("awake")?;
            pieces.close_channel();
            Ok::<_, anyhow::Error>(())
        };
        let (answer, sent) = tokio::join!(answer, pieces_follow);
        sent.context("sending the body")?;
        let answer = text(answer?).await?;
        ensure!(answer == "POST /slow\nasleep, waking, awake", "{answer}");
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn whoever_leaves_gives_up_the_seat_and_the_others_are_served() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        sleeping_gated(&whole.stage).await?;
        let address = whole.stage.reach("web", 80).await?;
        let mut impatient = http1(address).await?;
        let leaves = async {
            let asked = impatient.send_request(get("/impatient")?);
            tokio::select! {
                answer = asked => answer.map(drop).context("nobody may answer yet"),
                held = whole.until_held("web", 2) => held,
            }?;
            drop(impatient);
            whole.until_held("web", 1).await?;
            whole.stage.open("web").await
        };
        let url = format!("http://{address}/patient");
        let (answer, left) = tokio::join!(fetch(&url), leaves);
        left?;
        ensure!(answer? == "GET /patient\n");
        Ok(())
    })
}
