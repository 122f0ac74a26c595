use crate::client::http2;
use anyhow::{Context, Result, ensure};
use elasti_e2e::{
    grpc::{call, message},
    stage::Whole,
};
use futures::channel::mpsc;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use std::convert::Infallible;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_unary_grpc_call_waits_and_ends_with_its_status() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        whole.stage.sleeping().await?;
        let mut client = http2(whole.stage.reach("web", 80).await?).await?;
        let request = call(Full::new(message("hello")))?;
        let answer = client
            .send_request(request)
            .await?
            .into_body()
            .collect()
            .await?;
        let status = answer.trailers().and_then(|all| all.get("grpc-status"));
        ensure!(status.is_some_and(|status| status == "0"), "{status:?}");
        ensure!(answer.to_bytes() == message("hello"));
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_grpc_stream_goes_both_ways_at_once() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        whole.stage.sleeping().await?;
        let mut client = http2(whole.stage.reach("web", 80).await?).await?;
        let (messages, sent) = mpsc::unbounded::<Result<Frame<Bytes>, Infallible>>();
        let answer = client.send_request(call(StreamBody::new(sent))?).await?;
        let mut answers = answer.into_body();
        for word in ["one", "two", "three"] {
            messages.unbounded_send(Ok(Frame::data(message(word))))?;
            let answer = answers.frame().await.context("the stream goes on")??;
            ensure!(answer.data_ref() == Some(&message(word)), "{answer:?}");
        }
        drop(messages);
        let end = answers.frame().await.context("trailers are to come")??;
        let status = end.trailers_ref().and_then(|all| all.get("grpc-status"));
        ensure!(status.is_some_and(|status| status == "0"), "{end:?}");
        Ok(())
    })
}
