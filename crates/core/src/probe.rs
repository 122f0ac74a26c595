use elasti_api::{
    ProbeRule,
    probe::{MatchKind, PathMatch, PathMatchKind, ProbeAnswer},
};
use regex::bytes::{Regex, RegexBuilder};

/// The probe rules of one service, ready to be asked about every request.
#[derive(Clone, Debug, Default)]
pub struct ProbeRules {
    rules: Vec<Rule>,
}

pub type ValueTest<'a> = dyn Fn(&[u8]) -> bool + 'a;

/// As much of a request's head as a rule can ask for.
pub struct Request<'a> {
    pub method: &'a str,
    /// As sent, without the query.
    pub path: &'a str,
    /// As sent, without the question mark.
    pub query: Option<&'a str>,
    /// Whether any value of the header with this name, in any case, passes the test.
    pub any_header: &'a dyn Fn(&str, &ValueTest<'_>) -> bool,
}

/// A rule that was left out because it could never match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "probeResponse[{rule}].{field} '{value}' is not a regular expression in RE2's syntax, such as \
     '^/healthz?$': {reason}"
)]
pub struct ProbeRuleError {
    pub rule: usize,
    pub field: String,
    pub value: String,
    pub reason: String,
}

/// All parts must match.
#[derive(Clone, Debug)]
struct Rule {
    method: Option<String>,
    path: Test,
    headers: Vec<(String, Test)>,
    query_params: Vec<(String, Test)>,
    answer: ProbeAnswer,
}

#[derive(Clone, Debug)]
enum Test {
    Exact(String),
    Prefix(String),
    Found(Regex),
}

/// Bytes of one compiled expression: any tenant may write a thousand of them.
const MAX_REGEX: usize = 1 << 19;
/// Bytes of one expression's search cache, per thread that searches.
const MAX_REGEX_CACHE: usize = 1 << 18;

// === impl ProbeRules ===

impl ProbeRules {
    /// A rule with an invalid regular expression never matches: it is left out and reported.
    pub fn compile(rules: &[ProbeRule]) -> (Self, Vec<ProbeRuleError>) {
        let mut compiled = Self::default();
        let mut errors = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            match Rule::compile(index, rule) {
                Ok(rule) => compiled.rules.push(rule),
                Err(error) => errors.push(error),
            }
        }
        (compiled, errors)
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The answer of the first rule that matches.
    pub fn answer(&self, request: &Request<'_>) -> Option<&ProbeAnswer> {
        self.rules
            .iter()
            .find(|rule| rule.matches(request))
            .map(|rule| &rule.answer)
    }
}

// === impl Request ===

impl Request<'_> {
    fn any_param(&self, name: &str, test: &Test) -> bool {
        let query = self.query.unwrap_or_default();
        form_urlencoded::parse(query.as_bytes())
            .any(|(given, value)| given == name && test.passes(value.as_bytes()))
    }
}

// === impl Rule ===

impl Rule {
    fn compile(index: usize, rule: &ProbeRule) -> Result<Self, ProbeRuleError> {
        let method = rule.method.as_deref().map_or("", str::trim);
        let headers = rule.headers.iter();
        let query_params = rule.query_params.iter();
        Ok(Self {
            method: (!method.is_empty()).then(|| method.into()),
            path: Test::of_path(index, &rule.path)?,
            headers: named(
                index,
                "headers",
                headers.map(|header| (header.name.trim(), header.kind, &*header.value)),
            )?,
            query_params: named(
                index,
                "queryParams",
                query_params.map(|param| (&*param.name, param.kind, &*param.value)),
            )?,
            answer: rule.response.clone(),
        })
    }

    fn matches(&self, request: &Request<'_>) -> bool {
        let method = self.method.as_deref();
        let mut headers = self.headers.iter();
        let mut query_params = self.query_params.iter();
        method.is_none_or(|method| method.eq_ignore_ascii_case(request.method))
            && self.path.passes(request.path.as_bytes())
            && headers.all(|(name, test)| (request.any_header)(name, &|value| test.passes(value)))
            && query_params.all(|(name, test)| request.any_param(name, test))
    }
}

/// Headers or query parameters with their tests.
fn named<'a>(
    index: usize,
    list: &str,
    parts: impl Iterator<Item = (&'a str, MatchKind, &'a str)>,
) -> Result<Vec<(String, Test)>, ProbeRuleError> {
    parts
        .enumerate()
        .map(|(at, (name, kind, value))| {
            let test = match kind {
                MatchKind::Exact => Test::Exact(value.into()),
                MatchKind::RegularExpression => {
                    Test::found(index, &format!("{list}[{at}].value"), value)?
                }
            };
            Ok((name.into(), test))
        })
        .collect()
}

// === impl Test ===

impl Test {
    fn of_path(index: usize, path: &PathMatch) -> Result<Self, ProbeRuleError> {
        let value = &path.value;
        Ok(match path.kind {
            PathMatchKind::Exact => Self::Exact(value.clone()),
            PathMatchKind::PathPrefix => Self::Prefix(value.clone()),
            PathMatchKind::RegularExpression => Self::found(index, "path.value", value)?,
        })
    }

    fn found(index: usize, field: &str, value: &str) -> Result<Self, ProbeRuleError> {
        regex(value, false)
            .or_else(|_| regex(value, true))
            .map(Self::Found)
            .map_err(|error| ProbeRuleError {
                rule: index,
                field: field.into(),
                value: value.into(),
                reason: last_line(&error),
            })
    }

    fn passes(&self, value: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => value == exact.as_bytes(),
            Self::Prefix(prefix) => is_under(prefix.as_bytes(), value),
            Self::Found(regex) => regex.is_match(value),
        }
    }
}

/// RE2's `\w`, `\d` and `\b` are ASCII, as they are here without Unicode, where `\w{63}` is also a
/// hundred times smaller. An expression that names other characters has to be compiled with it.
fn regex(value: &str, unicode: bool) -> Result<Regex, regex::Error> {
    RegexBuilder::new(value)
        .unicode(unicode)
        .size_limit(MAX_REGEX)
        .dfa_size_limit(MAX_REGEX_CACHE)
        .build()
}

/// By whole segments. A prefix that ends with a slash wants the slash, except for the root, which
/// every path is under.
fn is_under(prefix: &[u8], path: &[u8]) -> bool {
    if matches!(prefix, b"" | b"/") {
        return true;
    }
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || prefix.ends_with(b"/") || rest.starts_with(b"/"))
}

/// A syntax error is a drawing of several lines that ends with the reason.
fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let line = text.lines().last().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// A request written as `GET /path?query` with headers.
    fn answer(rules: &Value, request: &str, headers: &[(&str, &str)]) -> Option<u16> {
        let rules: Vec<ProbeRule> = serde_json::from_value(rules.clone()).unwrap();
        let (rules, errors) = ProbeRules::compile(&rules);
        assert_eq!(errors, []);
        let (method, target) = request.split_once(' ').unwrap();
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let answer = rules.answer(&Request {
            method,
            path,
            query,
            any_header: &|name, test| {
                let mut given = headers.iter();
                given.any(|(n, value)| n.eq_ignore_ascii_case(name) && test(value.as_bytes()))
            },
        });
        answer.map(|answer| answer.status.get())
    }

    fn rule(mut parts: Value) -> Value {
        parts["response"] = json!({"status": 200});
        json!([parts])
    }

    fn matches(parts: Value, request: &str, headers: &[(&str, &str)]) -> bool {
        answer(&rule(parts), request, headers).is_some()
    }

    fn path(kind: &str, value: &str) -> Value {
        json!({"path": {"type": kind, "value": value}})
    }

    #[test]
    fn the_first_rule_that_matches_answers() {
        let rules = json!([
            {"path": {"value": "/a"}, "method": "POST", "response": {"status": 500}},
            {"path": {"value": "/a"}, "response": {"status": 204}},
            {"response": {"status": 404}},
        ]);
        assert_eq!(answer(&rules, "GET /a", &[]), Some(204));
        assert_eq!(answer(&rules, "POST /a", &[]), Some(500));
        assert_eq!(answer(&rules, "GET /b", &[]), Some(404));
        assert_eq!(answer(&json!([]), "GET /", &[]), None);
    }

    #[test]
    fn a_prefix_ends_where_a_segment_ends() {
        for (prefix, path_sent, expected) in [
            ("/a", "/a", true),
            ("/a", "/a/", true),
            ("/a", "/a/b", true),
            ("/a", "/ab", false),
            ("/a", "/", false),
            ("/a", "/A", false),
            ("/a/", "/a/", true),
            ("/a/", "/a/b", true),
            ("/a/", "/a", false),
            ("/a/b", "/a", false),
            ("/a%20b", "/a%20b/c", true),
            ("/", "/", true),
            ("/", "/anything/at/all", true),
            ("", "/anything", true),
            ("/", "*", true),
        ] {
            let found = matches(path("PathPrefix", prefix), &format!("GET {path_sent}"), &[]);
            assert_eq!(found, expected, "{path_sent} under {prefix}");
        }
    }

    #[test]
    fn an_exact_path_is_compared_as_sent_without_the_query() {
        assert!(matches(
            path("Exact", "/healthz"),
            "GET /healthz?full=1",
            &[]
        ));
        assert!(!matches(path("Exact", "/healthz"), "GET /healthz/", &[]));
        assert!(!matches(path("Exact", "/a b"), "GET /a%20b", &[]));
    }

    #[test]
    fn a_regular_expression_is_found_anywhere() {
        let regex = |value| path("RegularExpression", value);
        assert!(matches(regex("health"), "GET /v1/healthz", &[]));
        assert!(matches(regex(r"^/v\d+/live$"), "GET /v12/live", &[]));
        assert!(!matches(regex("^health"), "GET /v1/healthz", &[]));
        assert!(matches(regex(""), "GET /", &[]));
    }

    #[test]
    fn a_method_matches_in_any_case_and_an_empty_one_always() {
        assert!(matches(json!({"method": "get"}), "GET /", &[]));
        assert!(matches(json!({"method": " Get "}), "GET /", &[]));
        assert!(matches(json!({"method": ""}), "PATCH /", &[]));
        assert!(!matches(json!({"method": "HEAD"}), "GET /", &[]));
    }

    #[test]
    fn any_value_of_a_repeated_header_may_match() {
        let headers = [("user-agent", "curl"), ("User-Agent", "kube-probe/1.33")];
        let agent = |kind: &str, value: &str| json!({"headers": [{"name": "User-Agent", "type": kind, "value": value}]});
        assert!(matches(agent("Exact", "curl"), "GET /", &headers));
        assert!(matches(
            agent("RegularExpression", "^kube-probe/"),
            "GET /",
            &headers
        ));
        assert!(!matches(agent("Exact", "kube-probe"), "GET /", &headers));
        assert!(!matches(agent("Exact", "CURL"), "GET /", &headers));
        assert!(
            !matches(agent("RegularExpression", ""), "GET /", &[]),
            "absent"
        );
    }

    #[test]
    fn a_header_that_is_no_text_is_compared_by_its_bytes() {
        let found = Test::found(0, "", "^a.z$").unwrap();
        assert!(found.passes(b"a\xffz"));
        assert!(!found.passes(b"a\xff"));
    }

    #[test]
    fn classes_are_ascii_and_other_characters_are_themselves() {
        let found =
            |regex, value: &str| Test::found(0, "", regex).unwrap().passes(value.as_bytes());
        assert!(found(r"^[\w-]{1,63}$", "kube-probe"));
        assert!(!found(r"^\w$", "é"));
        assert!(found("^[é-ü]+$", "éü"));
        assert!(found(r"^\p{Greek}+$", "αβγ"));
    }

    #[test]
    fn any_decoded_value_of_a_query_parameter_may_match() {
        let param = |name: &str, kind: &str, value: &str| json!({"queryParams": [{"name": name, "type": kind, "value": value}]});
        let request = "GET /?mode=a&mode=b%26c&full&q%20n=x+y";
        assert!(matches(param("mode", "Exact", "a"), request, &[]));
        assert!(matches(param("mode", "Exact", "b&c"), request, &[]));
        assert!(matches(
            param("mode", "RegularExpression", "&c$"),
            request,
            &[]
        ));
        assert!(matches(param("full", "Exact", ""), request, &[]));
        assert!(matches(param("q n", "Exact", "x y"), request, &[]));
        assert!(!matches(param("Mode", "Exact", "a"), request, &[]));
        assert!(!matches(
            param("none", "RegularExpression", ""),
            request,
            &[]
        ));
        assert!(!matches(param("mode", "Exact", ""), "GET /", &[]));
    }

    #[test]
    fn all_parts_of_a_rule_must_match() {
        let parts = json!({
            "path": {"type": "Exact", "value": "/live"},
            "method": "GET",
            "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}],
            "queryParams": [{"name": "c", "value": "3"}, {"name": "d", "value": "4"}],
        });
        let headers = [("a", "1"), ("b", "2")];
        assert!(matches(parts.clone(), "GET /live?c=3&d=4", &headers));
        assert!(!matches(parts.clone(), "GET /dead?c=3&d=4", &headers));
        assert!(!matches(parts.clone(), "PUT /live?c=3&d=4", &headers));
        assert!(!matches(parts.clone(), "GET /live?c=3", &headers));
        assert!(!matches(parts, "GET /live?c=3&d=4", &headers[..1]));
    }

    #[test]
    fn an_invalid_expression_never_matches_and_is_reported_where_it_stands() {
        let rules = json!([
            {"response": {"status": 200}, "headers": [
                {"name": "a", "value": "("},
                {"name": "b", "type": "RegularExpression", "value": "("},
            ]},
            {"response": {"status": 204}},
            {"response": {"status": 200},
             "queryParams": [{"name": "a", "type": "RegularExpression", "value": "[a"}]},
            {"response": {"status": 200},
             "path": {"type": "RegularExpression", "value": r"(\w{1000}){1000}"}},
        ]);
        let rules: Vec<ProbeRule> = serde_json::from_value(rules).unwrap();
        let (compiled, errors) = ProbeRules::compile(&rules);
        let places: Vec<_> = errors
            .iter()
            .map(|error| (error.rule, &*error.field, &*error.value))
            .collect();
        assert_eq!(
            places,
            [
                (0, "headers[1].value", "("),
                (2, "queryParams[0].value", "[a"),
                (3, "path.value", r"(\w{1000}){1000}"),
            ]
        );
        assert_eq!(compiled.rules.len(), 1, "the valid rule is kept");
        for error in errors {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_path_is_under_a_prefix_as_its_segments_say(
            prefix in "(/[ab]{1,2}){1,3}",
            path_sent in "(/[ab]{0,2}){1,4}",
        ) {
            let wanted: Vec<_> = prefix.split('/').collect();
            let given: Vec<_> = path_sent.split('/').collect();
            prop_assert_eq!(
                is_under(prefix.as_bytes(), path_sent.as_bytes()),
                given.starts_with(&wanted)
            );
        }

        #[test]
        fn every_path_is_under_the_root(path: String) {
            prop_assert!(is_under(b"/", path.as_bytes()));
        }

        #[test]
        fn no_expression_and_no_request_panics(
            pattern: String,
            path: String,
            query: Option<String>,
            header: Vec<u8>,
        ) {
            let regex = |name| json!({"name": name, "type": "RegularExpression", "value": pattern});
            let rules = rule(json!({"headers": [regex("a")], "queryParams": [regex("b")]}));
            let rules: Vec<ProbeRule> = serde_json::from_value(rules).unwrap();
            let (rules, errors) = ProbeRules::compile(&rules);
            prop_assert_eq!(rules.is_empty(), !errors.is_empty());
            let _ = rules.answer(&Request {
                method: "GET",
                path: &path,
                query: query.as_deref(),
                any_header: &|_, test| test(&header),
            });
        }
    }
}
