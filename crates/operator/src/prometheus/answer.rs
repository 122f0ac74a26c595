//! What the query API's answer says: Prometheus's own, VictoriaMetrics's, Mimir's or Thanos's.

use super::failure::{Cause, Failure};
use http::StatusCode;
use serde::{Deserialize, de::IgnoredAny};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    status: String,
    error: Option<String>,
    data: Option<Data>,
    warnings: Option<Vec<String>>,
    /// VictoriaMetrics: a storage node did not take part.
    #[serde(default)]
    is_partial: bool,
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Data {
    Scalar(Sample),
    Vector(Option<Vec<Series>>),
    Matrix(IgnoredAny),
    String(IgnoredAny),
}

/// Without a value it is a native histogram.
#[derive(Deserialize)]
struct Series {
    value: Option<Sample>,
}

#[derive(Deserialize)]
struct Sample(IgnoredAny, Reading);

#[derive(Deserialize)]
#[serde(untagged)]
enum Reading {
    Text(String),
    Number(f64),
}

/// The one finite value, or NaN, of a query's answer.
pub(super) fn value(status: StatusCode, body: &[u8]) -> Result<f64, Failure> {
    if !status.is_success() {
        return Err(refusal(status, body));
    }
    // serde's error would quote the body.
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|_| unanswered("the answer is not that of a query API"))?;
    answer.whole()?.single()?.finite()
}

/// For people: no digits that say nothing.
pub(super) fn shown(value: f64) -> String {
    let shown = format!("{value:?}");
    shown.strip_suffix(".0").unwrap_or(&shown).to_owned()
}

fn refusal(status: StatusCode, body: &[u8]) -> Failure {
    if status.is_redirection() {
        return Failure::Refused(status, Cause::of("redirects are not followed"));
    }
    match (status, stated(body)) {
        (StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY, cause) => {
            Failure::Rejected(status, cause)
        }
        (_, cause) => Failure::Refused(status, cause),
    }
}

/// The API's error, or the line that Mimir and proxies answer; a web page says nothing.
fn stated(body: &[u8]) -> Cause {
    if let Ok(Answer { error, .. }) = serde_json::from_slice(body) {
        return error.map(Cause::of).unwrap_or_default();
    }
    match str::from_utf8(body).map(str::trim) {
        Ok(line) if !line.is_empty() && !line.starts_with(['<', '{', '[']) => Cause::of(line),
        _ => Cause::default(),
    }
}

fn unanswered(text: impl Into<String>) -> Failure {
    Failure::Unanswered(text.into())
}

// === impl Answer ===

impl Answer {
    /// Thanos, and Prometheus with remote storage, answer with what they could get and a warning.
    /// Remarks on the query itself come the same way; those cost no data.
    fn whole(self) -> Result<Data, Failure> {
        if self.status != "success" {
            let error = self.error.unwrap_or_else(|| "no success".into());
            return Err(unanswered(error));
        }
        let lost = |warning: &String| !warning.starts_with("PromQL ");
        match self.warnings.into_iter().flatten().find(lost) {
            Some(warning) => Err(Failure::Partial(Cause::of(warning))),
            None if self.is_partial => Err(Failure::Partial(Cause::default())),
            None => self.data.ok_or_else(|| unanswered("the answer is empty")),
        }
    }
}

// === impl Data ===

impl Data {
    fn single(self) -> Result<Sample, Failure> {
        let series = match self {
            Self::Scalar(sample) => return Ok(sample),
            Self::Vector(series) => series.unwrap_or_default(),
            Self::Matrix(_) => return Err(unanswered("the query gives a range, not one value")),
            Self::String(_) => return Err(unanswered("the query gives a text, not a number")),
        };
        let several = series.len();
        match <[Series; 1]>::try_from(series) {
            Ok([Series { value }]) => {
                value.ok_or_else(|| unanswered("the query gives a histogram, not a number"))
            }
            Err(none) if none.is_empty() => Err(Failure::Empty),
            Err(_) => Err(Failure::Several(several)),
        }
    }
}

// === impl Sample ===

impl Sample {
    fn finite(self) -> Result<f64, Failure> {
        let value = match self.1 {
            Reading::Number(value) => value,
            Reading::Text(text) => text
                .parse()
                .map_err(|_| unanswered("the value is no number"))?,
        };
        match value.is_infinite() {
            true => Err(Failure::Infinite),
            false => Ok(value),
        }
    }
}

#[cfg(test)]
mod tests;
