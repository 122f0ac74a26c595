//! What they may do is audited with `config/base` and `config/namespaced`; the chart's roles are the same.

use crate::{WORKSPACE, name, named, of_kind, rendered};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs};

const OPERATOR: &str = "elasti-operator-controller-manager";
const RESOLVER: &str = "elasti-resolver";
const ALLOWED: [&str; 3] = ["shop", "office", "elasti"];

#[test]
#[ignore = "needs helm: make chart"]
fn its_roles_are_those_of_config_base() -> Result<()> {
    let chart = rendered("default", &[])?;
    let operator = read("base/operator-permissions")?;
    let resolver = read("base/resolver-permissions")?;
    let at_home = format!("{OPERATOR}-at-home");
    let expected = [
        (
            "ClusterRole",
            "",
            OPERATOR,
            rules(find(&operator, "ClusterRole")?),
        ),
        (
            "ClusterRole",
            "",
            RESOLVER,
            rules(find(&resolver, "ClusterRole")?),
        ),
        ("Role", "elasti", &at_home, rules(find(&operator, "Role")?)),
        ("Role", "elasti", "elasti-uninstall", farewell()),
    ];
    are(&chart, &expected)
}

#[test]
#[ignore = "needs helm: make chart"]
fn its_roles_in_some_namespaces_are_those_of_config_namespaced() -> Result<()> {
    let chart = rendered("allowed-namespaces", &[])?;
    let base = read("base/operator-permissions")?;
    let each_other = rules(find(&read("namespaced/at-home")?, "Role")?);
    let operator = rules(find(&read("namespaced/permissions/operator")?, "Role")?);
    let resolver = rules(find(&read("namespaced/permissions/resolver")?, "Role")?);
    let operator_at_home = &rules(find(&base, "Role")?) | &each_other;
    let [of_operator, of_resolver] = [OPERATOR, RESOLVER].map(|name| format!("{name}-at-home"));
    let mut expected = vec![
        ("Role", "elasti", &*of_operator, operator_at_home),
        ("Role", "elasti", &*of_resolver, each_other),
        ("Role", "elasti", "elasti-uninstall", farewell()),
    ];
    for namespace in ALLOWED {
        expected.push(("Role", namespace, OPERATOR, operator.clone()));
        expected.push(("Role", namespace, RESOLVER, resolver.clone()));
    }
    are(&chart, &expected)
}

#[test]
#[ignore = "needs helm: make chart"]
fn who_asks_for_less_is_given_less() -> Result<()> {
    let chart = rendered("others", &[])?;
    let operator = rules(named(
        &chart,
        "ClusterRole/elasti-operator-controller-manager",
    )?);
    ensure!(
        !operator.iter().any(|rule| rule.contains("tokenreviews")),
        "{operator:#?}"
    );
    ensure!(
        operator.iter().any(|rule| rule.contains("games/scale")),
        "{operator:#?}"
    );
    ensure!(named(&chart, "Role/elasti-uninstall").is_err());
    Ok(())
}

type Expected<'a> = (&'a str, &'a str, &'a str, BTreeSet<String>);

/// These roles and no others, each bound to the account whose name it begins with.
fn are(chart: &[Value], expected: &[Expected<'_>]) -> Result<()> {
    let roles = ["ClusterRole", "Role"]
        .map(|kind| of_kind(chart, kind))
        .concat();
    ensure!(
        roles.len() == expected.len(),
        "{:?}",
        roles.iter().map(|role| name(role)).collect::<Vec<_>>()
    );
    for (kind, namespace, name, expected) in expected {
        let is_it = |object: &&&Value| {
            let metadata = &object["metadata"];
            metadata["name"] == *name
                && metadata["namespace"].as_str().unwrap_or_default() == *namespace
        };
        let what = format!("{kind} {namespace}/{name}");
        let role = of_kind(chart, kind);
        let role = role.iter().find(is_it).with_context(|| what.clone())?;
        let found = rules(role);
        ensure!(found == *expected, "{what}: {found:#?} {expected:#?}");
        let bindings = of_kind(chart, &format!("{kind}Binding"));
        let binding = bindings.iter().find(is_it).with_context(|| what.clone())?;
        ensure!(
            binding["roleRef"]["kind"] == *kind && binding["roleRef"]["name"] == *name,
            "{binding}"
        );
        let account = if name.starts_with(RESOLVER) {
            RESOLVER
        } else {
            OPERATOR
        };
        let account = json!([{"kind": "ServiceAccount", "name": account, "namespace": "elasti"}]);
        ensure!(binding["subjects"] == account, "{binding}");
    }
    Ok(())
}

/// Of the Job before an uninstall, beside what the operator may do.
fn farewell() -> BTreeSet<String> {
    let ends_operators = json!({
        "apiGroups": ["apps"],
        "resources": ["deployments/scale"],
        "resourceNames": [OPERATOR],
        "verbs": ["patch"],
    });
    BTreeSet::from([ends_operators.to_string()])
}

fn read(file: &str) -> Result<Vec<Value>> {
    let text = fs::read_to_string(format!("{WORKSPACE}/config/{file}.yaml"))?;
    Ok(serde_saphyr::from_multiple(&text)?)
}

fn find<'a>(objects: &'a [Value], kind: &str) -> Result<&'a Value> {
    let found = of_kind(objects, kind);
    found
        .first()
        .copied()
        .with_context(|| format!("there is no {kind}"))
}

fn rules(role: &Value) -> BTreeSet<String> {
    let rules = role["rules"].as_array().into_iter().flatten();
    rules.map(Value::to_string).collect()
}
