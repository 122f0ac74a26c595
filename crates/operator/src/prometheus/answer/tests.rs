use super::*;
use serde_json::{Value, json};

fn read(body: Value) -> Result<f64, Failure> {
    value(StatusCode::OK, body.to_string().as_bytes())
}

fn vector(values: &[&str]) -> Value {
    let series: Vec<_> = values
        .iter()
        .map(|value| json!({"metric": {"job": "self"}, "value": [1794790291.372, value]}))
        .collect();
    json!({"status": "success", "data": {"resultType": "vector", "result": series}})
}

fn failed(status: u16, body: &str) -> (&'static str, String) {
    let failure = value(StatusCode::from_u16(status).unwrap(), body.as_bytes()).unwrap_err();
    (failure.reason(), failure.to_string())
}

#[test]
fn one_result_is_the_value_as_vector_or_scalar() {
    let scalar = json!({"status": "success", "data": {"resultType": "scalar", "result": [1, "3"]}});
    assert_eq!(read(scalar), Ok(3.0));
    assert_eq!(read(vector(&["0.25"])), Ok(0.25));
    assert_eq!(read(vector(&["1e-05"])), Ok(1e-5));
    assert!(read(vector(&["NaN"])).unwrap().is_nan());
}

#[test]
fn none_several_and_infinite_results_have_a_reason_of_their_own() {
    assert_eq!(read(vector(&[])), Err(Failure::Empty));
    assert_eq!(read(vector(&["1", "2", "3"])), Err(Failure::Several(3)));
    assert_eq!(read(vector(&["+Inf"])), Err(Failure::Infinite));
    assert_eq!(read(vector(&["-Inf"])), Err(Failure::Infinite));
    let null = json!({"status": "success", "data": {"resultType": "vector", "result": null}});
    assert_eq!(read(null), Err(Failure::Empty));
}

#[test]
fn keys_that_other_servers_add_are_ignored() {
    let victoria = r#"{"status":"success","isPartial":false,"data":{"resultType":"vector","result":
        [{"metric":{},"value":[1768145114,"1"]}]},"stats":{"seriesFetched":"1","executionTimeMsec":1}}"#;
    let thanos = r#"{"status":"success","data":{"analysis":{},"result":
        [{"metric":{},"value":[1.5,"1"]}],"resultType":"vector","stats":{"timings":{}}}}"#;
    let mimir = r#"{"status":"success","data":{"resultType":"vector","result":
        [{"metric":{},"value":[1.5,"1"]}]},"warnings":null,"infos":["PromQL info: no counter"]}"#;
    for body in [victoria, thanos, mimir] {
        assert_eq!(value(StatusCode::OK, body.as_bytes()), Ok(1.0), "{body}");
    }
}

#[test]
fn answer_that_lacks_a_part_of_the_data_is_unknown() {
    let mut partial = vector(&["0"]);
    partial["isPartial"] = json!(true);
    assert_eq!(read(partial).unwrap_err().reason(), "PartialResult");

    let mut warned = vector(&["0"]);
    warned["warnings"] = json!([
        "PromQL warning: bucket label",
        "store 10.0.0.1:10901 is away"
    ]);
    let lost = read(warned).unwrap_err();
    assert_eq!(lost.reason(), "PartialResult");
    assert!(lost.to_string().contains("10.0.0.1"), "{lost}");
}

#[test]
fn remark_on_the_query_itself_costs_no_data() {
    let mut remarked = vector(&["0"]);
    remarked["warnings"] = json!(["PromQL info: metric might not be a counter"]);
    assert_eq!(read(remarked), Ok(0.0));
}

#[test]
fn results_that_are_no_number_are_named() {
    for (kind, result, named) in [
        ("matrix", json!([{"metric": {}, "values": []}]), "range"),
        ("string", json!([1, "x"]), "text"),
        (
            "vector",
            json!([{"metric": {}, "histogram": [1, {"count": "2"}]}]),
            "histogram",
        ),
        ("vector", json!([{"value": [1, "many"]}]), "no number"),
    ] {
        let body = json!({"status": "success", "data": {"resultType": kind, "result": result}});
        let failure = read(body).unwrap_err();
        assert_eq!(failure.reason(), "QueryFailed");
        assert!(failure.to_string().contains(named), "{failure}");
    }
}

#[test]
fn refusal_quotes_the_error_of_the_server_and_no_web_page() {
    let bad = r#"{"status":"error","errorType":"bad_data","error":"1:6: parse error"}"#;
    assert_eq!(
        failed(400, bad),
        (
            "QueryFailed",
            "HTTP 400 Bad Request: 1:6: parse error".into()
        )
    );
    assert_eq!(
        failed(401, "no org id\n").1,
        "HTTP 401 Unauthorized: no org id"
    );
    assert_eq!(failed(502, "<html>nginx</html>").1, "HTTP 502 Bad Gateway");
    assert_eq!(
        failed(302, "<a href=/login>").1,
        "HTTP 302 Found: redirects are not followed"
    );
    assert_eq!(
        failed(200, r#"{"status":"error","error":"shut"}"#).1,
        "shut"
    );
}

#[test]
fn answer_of_something_else_is_not_quoted() {
    for body in [
        "",
        "secret",
        "<html>",
        "[]",
        r#"{"status":7,"error":"secret"}"#,
        "\u{7f}",
    ] {
        let (reason, message) = failed(200, body);
        assert_eq!(reason, "QueryFailed");
        assert_eq!(message, "the answer is not that of a query API");
    }
}

#[test]
fn values_are_shown_without_digits_that_say_nothing() {
    assert_eq!(shown(0.0), "0");
    assert_eq!(shown(0.25), "0.25");
    assert_eq!(shown(1e300), "1e300");
    assert_eq!(shown(f64::NAN), "NaN");
}
