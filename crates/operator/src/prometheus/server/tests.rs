use super::*;
use crate::prometheus::failure::Cause;
use elasti_core::verdict::Verdict;
use http::StatusCode;
use serde_json::{Value, json};

const DEFAULT: &str = "http://default:9090";

fn trigger(address: Option<&str>, headers: Value) -> PrometheusTrigger {
    serde_json::from_value(json!({
        "serverAddress": address, "query": "up", "threshold": 1, "headers": headers,
    }))
    .unwrap()
}

fn server(address: Option<&str>, headers: Value) -> Result<Server, Failure> {
    let authorization = Some(secret("Bearer operator-token").unwrap());
    Server::of(&trigger(address, headers), Some(DEFAULT), &authorization)
}

fn refused(headers: Value) -> String {
    let failure = server(None, headers).err().unwrap();
    assert_eq!(failure.reason(), "InvalidTrigger");
    failure.to_string()
}

#[test]
fn request_is_that_of_the_contract() {
    let server = server(Some("http://mimir/prometheus/"), json!({})).unwrap();
    let now = "2026-01-02T03:04:05.678Z".parse().unwrap();
    let request = server.request(r#"sum(up{a="ä b"}) + 1"#, now).unwrap();
    assert_eq!(request.method(), "GET");
    assert_eq!(
        request.uri(),
        "http://mimir/prometheus/api/v1/query\
         ?query=sum%28up%7Ba%3D%22%C3%A4%20b%22%7D%29%20%2B%201&time=2026-01-02T03:04:05Z"
    );
}

#[test]
fn trigger_without_an_address_asks_the_default_server() {
    for address in [None, Some(""), Some(" ")] {
        let server = server(address, json!({})).unwrap();
        assert_eq!(server.address.base, DEFAULT);
    }
}

#[test]
fn missing_address_names_the_setting_of_the_operator() {
    let failure = Server::of(&trigger(None, json!({})), None, &None).err();
    let opinion = failure.unwrap().opinion();
    assert_eq!(opinion.reason, "InvalidTrigger");
    assert!(
        opinion
            .message
            .contains("PROMETHEUS_TRIGGER_SERVER_ADDRESS")
    );
}

#[test]
fn wrong_address_is_not_quoted() {
    let failure = server(Some("ftp://me:hunter2@host"), json!({})).err();
    let message = failure.unwrap().to_string();
    assert!(
        message.starts_with("serverAddress is no address"),
        "{message}"
    );
    assert!(!message.contains("hunter2"), "{message}");
}

#[test]
fn headers_of_the_trigger_override_the_default_authorization() {
    let given = |headers| server(None, headers).unwrap().headers;
    assert_eq!(given(json!({}))["authorization"], "Bearer operator-token");
    let own = given(json!({"authorization": "Basic mine", "X-Scope-OrgID": "team\n"}));
    assert_eq!(own.get_all("authorization").iter().count(), 1);
    assert_eq!(own["authorization"], "Basic mine");
    assert_eq!(own["x-scope-orgid"], "team");
}

#[test]
fn password_of_the_address_is_the_last_resort() {
    let trigger = trigger(Some("http://me:pw@host"), json!({}));
    let server = Server::of(&trigger, None, &None).unwrap();
    assert_eq!(server.headers["authorization"], "Basic bWU6cHc=");
}

#[test]
fn wrong_header_is_named_without_its_value() {
    assert!(refused(json!({"X Y": "hunter2"})).contains("X Y"));
    let message = refused(json!({"X-Key": "hunter2\nX-Other: 1"}));
    assert!(
        message.contains("X-Key") && !message.contains("hunter2"),
        "{message}"
    );
}

#[test]
fn headers_that_frame_a_message_are_refused() {
    for name in ["Content-Length", "transfer-encoding", "Connection"] {
        assert!(refused(json!({name: "5"})).contains(name));
    }
}

#[test]
fn query_too_long_for_an_address_is_the_fault_of_the_trigger() {
    let server = server(None, json!({})).unwrap();
    let failure = server.request(&"ä".repeat(16_384), Timestamp::UNIX_EPOCH);
    assert_eq!(failure.unwrap_err().reason(), "InvalidTrigger");
}

#[test]
fn server_that_quotes_the_headers_is_not_quoted() {
    let server = server(None, json!({"X-Key": "hunter2"})).unwrap();
    let echo = Cause::of(format!(
        "{}bad Authorization: Bearer operator-token, X-Key: hunter2",
        "x".repeat(150)
    ));
    let opinion = server.blame(&Failure::Refused(StatusCode::UNAUTHORIZED, echo));
    assert_eq!(opinion.verdict, Verdict::Unknown);
    assert!(opinion.message.starts_with("default:9090: HTTP 401"));
    assert!(!opinion.message.contains("operator"), "{}", opinion.message);
    assert!(!opinion.message.contains("hunter2"), "{}", opinion.message);
}
