//! One write each. What the API server answers beyond success is not read: the watch tells.

use super::{Error, FIELD_MANAGER};
use http::{Method, Request, header};
use kube::{Api, Client, Resource};
use serde_json::Value;

/// How an object is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Write {
    /// It must not be there yet.
    Create,
    /// What we wrote before and no longer do is removed.
    Apply,
    Merge,
    /// By operations, which may test what they change.
    Operations,
}

/// The path of an object, or of a part of it.
pub(super) fn path<K: Resource>(api: &Api<K>, name: &str) -> String {
    format!("{}/{name}", api.resource_url())
}

/// To create something, `path` is that of its kind.
pub(super) async fn write(
    client: &Client,
    path: &str,
    how: Write,
    body: &Value,
) -> Result<(), Error> {
    let (method, content, force) = match how {
        Write::Create => (Method::POST, "application/json", ""),
        Write::Apply => (Method::PATCH, "application/apply-patch+yaml", "&force=true"),
        Write::Merge => (Method::PATCH, "application/merge-patch+json", ""),
        Write::Operations => (Method::PATCH, "application/json-patch+json", ""),
    };
    let request = Request::builder()
        .method(method)
        .uri(format!("{path}?fieldManager={FIELD_MANAGER}{force}"))
        .header(header::CONTENT_TYPE, content)
        .body(body.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    client.request_text(request).await?;
    Ok(())
}

/// Operations that test what they change. What is not there is left alone.
pub(super) async fn tested(client: &Client, path: &str, operations: &Value) -> Result<(), Error> {
    match write(client, path, Write::Operations, operations).await {
        Err(Error::Kube(kube::Error::Api(status))) if status.code == 404 => Ok(()),
        Err(error) if is_failed_test(&error) => Err(Error::Meanwhile),
        outcome => outcome,
    }
}

/// Whether something was not as an operation tests. What a rule forbids has a cause, a test that fails has none.
pub(super) fn is_failed_test(error: &Error) -> bool {
    let Error::Kube(kube::Error::Api(status)) = error else {
        return false;
    };
    let causes = status.details.as_ref().map(|details| &details.causes);
    status.code == 422 && causes.is_none_or(Vec::is_empty)
}
